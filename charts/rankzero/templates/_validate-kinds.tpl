{{/* What runs the pods, and how many of them. */}}
{{- define "rankzero.validate.kinds" -}}
{{- $errors := list }}
{{- with .Values }}

{{- if lt (int .nodes) 1 }}
{{- $errors = append $errors (printf "nodes is %d, the least allowed is 1: set it to the number of machines to train on" (int .nodes)) }}
{{- end }}

{{- end }}
{{- toJson $errors }}
{{- end }}
