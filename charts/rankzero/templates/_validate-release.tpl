{{/* Name of the release, labels of its pods. */}}
{{- define "rankzero.validate.release" -}}
{{- $errors := list }}
{{- with .Values }}

{{- /* The release's name becomes a DNS label, and with a revision's hash of up to 10 digits a label of 63. */}}
{{- $name := $.Release.Name }}
{{- if gt (len $name) 52 }}
{{- $errors = append $errors (printf "the release name %s has %d characters, the most possible is 52: choose a shorter one" $name (len $name)) }}
{{- end }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) }}
{{- $errors = append $errors (printf "the release name %s cannot be part of a host name: use a-z, 0-9 and -, beginning with a letter" $name) }}
{{- end }}

{{- range $label, $_ := include "rankzero.selectorLabels" $ | fromYaml }}
{{- if hasKey $.Values.podLabels $label }}
{{- $errors = append $errors (printf "podLabels[%s] is set, by which the chart finds its pods: remove it" $label) }}
{{- end }}
{{- end }}

{{- end }}
{{- toJson $errors }}
{{- end }}
