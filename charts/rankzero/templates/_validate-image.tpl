{{/* The image. */}}
{{- define "rankzero.validate.image" -}}
{{- $errors := list }}
{{- with .Values }}

{{- if not .image.repository }}
{{- $errors = append $errors "image.repository is empty: set it to the image that `make build-image` printed" }}
{{- end }}
{{- if eq .image.tag "latest" }}
{{- $errors = append $errors "image.tag is latest, which names another image tomorrow: set the tag that `make build-image` printed" }}
{{- end }}
{{- if not (or .image.tag .image.digest) }}
{{- $errors = append $errors "image.tag and image.digest are empty: set one of them to what `make build-image` printed" }}
{{- end }}

{{- end }}
{{- toJson $errors }}
{{- end }}
