{{/* Name of the release, labels of its pods. */}}
{{- define "rankzero.validate.release" -}}
{{- $errors := list }}
{{- with .Values }}

{{- /* Host names and labels of the pods begin with the release's name, and end at 63 characters. */}}
{{- $name := $.Release.Name }}
{{- $most := sub 63 (include "rankzero.longestSuffix" $ | len) }}
{{- if gt (len $name) $most }}
{{- $errors = append $errors (printf "the release name %s has %d characters, the most possible for a %s is %d: choose a shorter one" $name (len $name) .workload.kind $most) }}
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
