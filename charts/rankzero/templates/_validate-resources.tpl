{{/* What a pod takes of its node. */}}
{{- define "rankzero.validate.resources" -}}
{{- $errors := list }}
{{- with .Values }}

{{- if and .shm.size .resources.memory }}
{{- if ge (include "rankzero.mebibytes" .shm.size | int64) (include "rankzero.mebibytes" .resources.memory | int64) }}
{{- $errors = append $errors (printf "shm.size is %s but resources.memory is %s, which counts /dev/shm too: set shm.size below it or raise resources.memory" .shm.size .resources.memory) }}
{{- end }}
{{- end }}

{{- end }}
{{- toJson $errors }}
{{- end }}
