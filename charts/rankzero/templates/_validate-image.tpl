{{/* The image. */}}
{{- define "rankzero.validate.image" -}}
{{- $errors := list }}
{{- with .Values }}

{{- if not .image.repository }}
{{- $errors = append $errors "image.repository is empty: set it to the image that `make build-image` printed" }}
{{- end }}
{{- with regexFind "(:[^/:@]+)?(@.+)?$" .image.repository }}
{{- $parts := list (printf "image.repository to %s" (trimSuffix . $.Values.image.repository)) }}
{{- with regexFind "^:[^@]+" . }}{{ $parts = append $parts (printf "image.tag to %s" (trimPrefix ":" .)) }}{{ end }}
{{- with regexFind "@.+$" . }}{{ $parts = append $parts (printf "image.digest to %s" (trimPrefix "@" .)) }}{{ end }}
{{- $errors = append $errors (printf "image.repository is %s, a whole reference: set %s" $.Values.image.repository (join ", " $parts)) }}
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
