{{/* Checkpoints, datasets, caches. */}}
{{- define "rankzero.validate.storage" -}}
{{- $errors := list }}
{{- with .Values }}

{{- $nodes := int .nodes }}
{{- with .checkpoints }}
{{- $sources := list }}
{{- range list "existingClaim" "nfs" "hostPath" }}{{ if get $.Values.checkpoints . }}{{ $sources = append $sources . }}{{ end }}{{ end }}
{{- if gt (len $sources) 1 }}
{{- $errors = append $errors (printf "checkpoints has %s, and state lies in one place: keep one of existingClaim, nfs and hostPath" (join " and " $sources)) }}
{{- end }}
{{- if and (gt $nodes 1) (include "rankzero.makesClaim" $) (ne (include "rankzero.accessMode" $) "ReadWriteMany") }}
{{- $errors = append $errors (printf "checkpoints.accessMode is %s but nodes is %d: remove it or set it to ReadWriteMany, with a checkpoints.storageClass that can do it" .accessMode $nodes) }}
{{- end }}
{{- if and (gt $nodes 1) .hostPath (not .hostPath.shared) }}
{{- $errors = append $errors (printf "checkpoints.hostPath is %s but nodes is %d, and each node would have a folder of its own: set checkpoints.hostPath.shared to true where it is one file system on all of them, or use a claim or nfs" .hostPath.path $nodes) }}
{{- end }}
{{- if and .storageClass (not (include "rankzero.makesClaim" $)) }}
{{- $errors = append $errors (printf "checkpoints.storageClass is %s but checkpoints.%s is set, so no claim is made: remove one of them" .storageClass (join " and " $sources)) }}
{{- end }}
{{- end }}

{{- with .checkpoints.local }}
{{- if and (not .enabled) (or .size .storageClass .hostPath) }}
{{- $errors = append $errors "checkpoints.local has size, storageClass or hostPath but enabled is false: set checkpoints.local.enabled to true or remove them" }}
{{- end }}
{{- if and .storageClass (not .size) }}
{{- $errors = append $errors (printf "checkpoints.local.storageClass is %s but checkpoints.local.size is empty: set checkpoints.local.size to the size of each pod's claim" .storageClass) }}
{{- end }}
{{- if and .hostPath (or .size .storageClass) }}
{{- $errors = append $errors (printf "checkpoints.local.hostPath is %s beside checkpoints.local.size or storageClass, and a folder of the nodes has neither: remove them or checkpoints.local.hostPath" .hostPath.path) }}
{{- end }}
{{- with dig "checkpoint" "localPath" "" $.Values.train }}
{{- if $.Values.checkpoints.local.enabled }}
{{- $errors = append $errors (printf "train.checkpoint.localPath is %s but checkpoints.local is enabled, which sets it: remove one of them" .) }}
{{- end }}
{{- end }}
{{- end }}

{{- with .cache }}
{{- if and .storageClass (not .size) }}
{{- $errors = append $errors (printf "cache.storageClass is %s but cache.size is empty: set cache.size to the size of each pod's claim" .storageClass) }}
{{- end }}
{{- if and .hostPath (or .size .storageClass) }}
{{- $errors = append $errors (printf "cache.hostPath is %s beside cache.size or cache.storageClass, and a folder of the nodes has neither: remove them or cache.hostPath" .hostPath.path) }}
{{- end }}
{{- end }}

{{- with .resources.ephemeralStorage }}
{{- $bounds := list $.Values.tmp.size }}
{{- if not $.Values.cache.storageClass }}
{{- $bounds = append $bounds $.Values.cache.size }}
{{- end }}
{{- if not $.Values.checkpoints.local.storageClass }}
{{- $bounds = append $bounds $.Values.checkpoints.local.size }}
{{- end }}
{{- range $.Values.datasets }}
{{- $bounds = append $bounds (dig "objectStorage" "cacheSize" "" .) }}
{{- end }}
{{- $sum := 0 }}
{{- range compact $bounds }}
{{- $sum = add $sum (include "rankzero.mebibytes" . | int64) }}
{{- end }}
{{- if gt (int64 $sum) (include "rankzero.mebibytes" . | int64) }}
{{- $errors = append $errors (printf "resources.ephemeralStorage is %s but tmp.size, cache.size, checkpoints.local.size and the caches of datasets add up to %dMi, so a pod would be evicted within its own bounds: raise it or lower them" . $sum) }}
{{- end }}
{{- end }}

{{- with .shm }}
{{- if and .size .loader }}
{{- $errors = append $errors (printf "shm.size is %s and shm.loader is set, which makes the size: remove one of them" .size) }}
{{- end }}
{{- with .loader }}
{{- range $key, $told := pick . "workers" "prefetch" }}
{{- $read := dig "dataLoader" $key $told $.Values.train }}
{{- if ne (int $told) (int $read) }}
{{- $errors = append $errors (printf "shm.loader.%s is %d but train.dataLoader.%s is %d, by which the library reads: remove shm.loader.%s" $key (int $told) $key (int $read) $key) }}
{{- end }}
{{- end }}
{{- if not .batch }}
{{- $errors = append $errors "shm.loader.batch is missing, so nothing can be added up: set it to the memory of one batch, e.g. 40Mi" }}
{{- else if $.Values.resources.memory }}
{{- $size := include "rankzero.shmSize" $ }}
{{- if ge (include "rankzero.mebibytes" $size | int64) (include "rankzero.mebibytes" $.Values.resources.memory | int64) }}
{{- $errors = append $errors (printf "shm.loader adds up to %s but resources.memory is %s, which counts /dev/shm too: lower shm.loader or raise resources.memory" $size $.Values.resources.memory) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A path in a pod belongs to one owner. */}}
{{- $taken := dict "/checkpoints" "the checkpoints" "/local-checkpoints" "checkpoints of the node" "/tmp" "temporary files" "/opt/rankzero" "the trainer" "/opt/conda" "the Python of many images" }}
{{- range list "/bin" "/dev" "/etc" "/lib" "/lib64" "/proc" "/run" "/sbin" "/sys" "/usr" "/var/run" }}
{{- $_ := set $taken . "the system" }}
{{- end }}
{{- $mounts := list }}
{{- if include "rankzero.codeSources" $ | fromJsonArray }}
{{- $mounts = append $mounts (dict "key" "code" "path" .code.mountPath "instead" "/workspace") }}
{{- end }}
{{- range $i, $dataset := .datasets }}
{{- $mounts = append $mounts (dict "key" (printf "datasets[%d]" $i) "path" .mountPath "instead" (printf "/data/%s" .name)) }}
{{- end }}
{{- range $mount := $mounts }}
{{- range $path, $owner := $taken }}
{{- if or (hasPrefix (print $path "/") (print $mount.path "/")) (hasPrefix (print $mount.path "/") (print $path "/")) }}
{{- $errors = append $errors (printf "%s.mountPath is %s but %s holds %s: choose a path that is neither above nor below it, e.g. %s" $mount.key $mount.path $path $owner $mount.instead) }}
{{- end }}
{{- end }}
{{- $_ := set $taken .path .key }}
{{- end }}

{{- $names := dict }}
{{- range $i, $dataset := .datasets }}
{{- $key := printf "datasets[%d]" $i }}
{{- $sources := list }}
{{- range list "claim" "nfs" "hostPath" "objectStorage" }}{{ if get $dataset . }}{{ $sources = append $sources . }}{{ end }}{{ end }}
{{- if ne (len $sources) 1 }}
{{- $errors = append $errors (printf "%s (%s) has %s as its source: give exactly one of claim, nfs, hostPath and objectStorage" $key .name (join " and " $sources | default "nothing")) }}
{{- end }}
{{- with .objectStorage }}
{{- if and .cacheSize .cachePath }}
{{- $errors = append $errors (printf "%s.objectStorage.cacheSize is %s but cachePath is %s, and a folder of the nodes has no bound: remove one of them" $key .cacheSize .cachePath) }}
{{- end }}
{{- if $dataset.readOnly }}
{{- $errors = append $errors (printf "%s.readOnly is true but the trainer fills the cache of %s at its mountPath: remove readOnly" $key .url) }}
{{- end }}
{{- end }}
{{- with get $names .name }}
{{- $errors = append $errors (printf "%s.name is %s, as is that of %s: give each dataset a name of its own" $key $dataset.name .) }}
{{- end }}
{{- $_ := set $names .name $key }}
{{- end }}

{{- $mirror := dig "checkpoint" "mirror" "" $.Values.train }}
{{- $urls := dict "train.checkpoint.mirror" $mirror "train.resume.from" (dig "resume" "from" "" $.Values.train) }}
{{- range $key := list "url" "endpoint" }}
{{- $_ := set $urls (printf "objectStorage.%s" $key) (get $.Values.objectStorage $key) }}
{{- end }}
{{- range $key, $url := $urls }}
{{- if regexMatch "://([^/@]+@|.*[?&]sig=)" $url }}
{{- $errors = append $errors (printf "%s holds a user name, password or key, which everybody who may read the release would see: put them into a Secret and name that in objectStorage.secret" $key) }}
{{- end }}
{{- end }}
{{- if and $mirror (not (regexMatch "^((s3|gs|az)://[^/]|file:///)" $mirror)) }}
{{- $errors = append $errors (printf "train.checkpoint.mirror is %s, where no copies can be: set it to a bucket and a folder in it, e.g. s3://bucket/checkpoints" $mirror) }}
{{- end }}
{{- range $variable := include "rankzero.objectStorageEnv" $ | fromYamlArray }}
{{- range $key, $given := dict "network.env" $.Values.network.env "secretEnv" $.Values.secretEnv }}
{{- if hasKey $given $variable.name }}
{{- $errors = append $errors (printf "%s.%s is set, as objectStorage sets it too: remove one of them" $key $variable.name) }}
{{- end }}
{{- end }}
{{- end }}

{{- end }}
{{- toJson $errors }}
{{- end }}
