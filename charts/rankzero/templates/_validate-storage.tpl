{{/* Checkpoints and datasets. */}}
{{- define "rankzero.validate.storage" -}}
{{- $errors := list }}
{{- with .Values }}

{{- with .checkpoints }}
{{- if and (gt (int $.Values.nodes) 1) (not .existingClaim) (ne .accessMode "ReadWriteMany") }}
{{- $errors = append $errors (printf "checkpoints.accessMode is %s but nodes is %d: set it to ReadWriteMany, with a checkpoints.storageClass that can do it" .accessMode (int $.Values.nodes)) }}
{{- end }}
{{- end }}

{{- $taken := dict "/checkpoints" "the checkpoints" "/tmp" "temporary files" "/opt/rankzero" "the trainer" }}
{{- range list "/bin" "/dev" "/etc" "/lib" "/lib64" "/proc" "/run" "/sbin" "/sys" "/usr" "/var/run" }}
{{- $_ := set $taken . "the system" }}
{{- end }}
{{- $names := dict }}
{{- range $i, $dataset := .datasets }}
{{- $key := printf "datasets[%d]" $i }}
{{- $sources := list }}
{{- range list "claim" "nfs" "hostPath" }}{{ if get $dataset . }}{{ $sources = append $sources . }}{{ end }}{{ end }}
{{- if ne (len $sources) 1 }}
{{- $errors = append $errors (printf "%s (%s) has %s as its source: give exactly one of claim, nfs and hostPath" $key .name (join " and " $sources | default "nothing")) }}
{{- end }}
{{- with get $names .name }}
{{- $errors = append $errors (printf "%s.name is %s, as is that of %s: give each dataset a name of its own" $key $dataset.name .) }}
{{- end }}
{{- range $path, $owner := $taken }}
{{- if or (hasPrefix (print $path "/") (print $dataset.mountPath "/")) (hasPrefix (print $dataset.mountPath "/") (print $path "/")) }}
{{- $errors = append $errors (printf "%s.mountPath is %s but %s holds %s: choose a path that is neither above nor below it, e.g. /data/%s" $key $dataset.mountPath $path $owner $dataset.name) }}
{{- end }}
{{- end }}
{{- $_ := set $names .name $key }}
{{- $_ := set $taken .mountPath $key }}
{{- end }}

{{- end }}
{{- toJson $errors }}
{{- end }}
