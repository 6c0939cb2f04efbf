{{/* Claims that are there already, where Helm asks a cluster. */}}
{{- define "rankzero.validate.claims" -}}
{{- $errors := list }}
{{- $nodes := int .Values.nodes }}

{{- /* An upgrade leaves it to the API, which says the same, and to `rankzero diff`, which foretells it. */}}
{{- if and .Release.IsInstall (include "rankzero.makesClaim" .) }}
{{- $name := include "rankzero.checkpointClaim" . }}
{{- with (lookup "v1" "PersistentVolumeClaim" .Release.Namespace $name).spec }}
{{- $way := printf "copy the checkpoints to a claim of your own and name it in checkpoints.existingClaim, or give them up with `kubectl delete pvc %s`" $name }}
{{- $mode := include "rankzero.accessMode" $ }}
{{- if and (has "ReadWriteMany" .accessModes) (ne $mode "ReadWriteMany") }}
{{- $errors = append $errors (printf "the claim %s is there from an earlier install and ReadWriteMany, which it stays: set checkpoints.accessMode to that" $name) }}
{{- else if not (has $mode .accessModes) }}
{{- $errors = append $errors (printf "the claim %s is there from an earlier install and stays %s, but nodes is %d and wants %s: %s" $name (join " and " .accessModes) $nodes $mode $way) }}
{{- end }}
{{- if and $.Values.checkpoints.storageClass (ne $.Values.checkpoints.storageClass (.storageClassName | default "")) }}
{{- $errors = append $errors (printf "checkpoints.storageClass is %s but the claim %s is there from an earlier install and stays with %s: leave the class out; or %s" $.Values.checkpoints.storageClass $name (.storageClassName | default "none") $way) }}
{{- end }}
{{- $size := dig "resources" "requests" "storage" "" . }}
{{- if regexMatch "^[0-9.]+([kMGT]|[KMGT]i)$" $size }}
{{- if lt (include "rankzero.bytes" $.Values.checkpoints.size | int64) (include "rankzero.bytes" $size | int64) }}
{{- $errors = append $errors (printf "checkpoints.size is %s but the claim %s is there from an earlier install with %s, and a claim only grows: set checkpoints.size to at least that" $.Values.checkpoints.size $name $size) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- if gt $nodes 1 }}
{{- $mounted := dict "checkpoints.existingClaim" (dict "claim" .Values.checkpoints.existingClaim) "code.claim" (pick .Values.code "claim" "readOnly") }}
{{- range $i, $dataset := .Values.datasets }}
{{- $_ := set $mounted (printf "datasets[%d].claim" $i) (dict "claim" $dataset.claim "readOnly" (dig "readOnly" true $dataset)) }}
{{- end }}
{{- range $key, $mount := $mounted }}
{{- if $mount.claim }}
{{- with (lookup "v1" "PersistentVolumeClaim" $.Release.Namespace $mount.claim).spec }}
{{- if not (or (has "ReadWriteMany" .accessModes) (and $mount.readOnly (has "ReadOnlyMany" .accessModes))) }}
{{- $errors = append $errors (printf "%s is %s, which is %s, but nodes is %d and one machine alone can mount it so: name a claim that is ReadWriteMany, or set nodes to 1" $key $mount.claim (join " and " .accessModes) $nodes) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- toJson $errors }}
{{- end }}
