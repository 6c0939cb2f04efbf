{{/* Where pods may run. */}}
{{- define "rankzero.validate.scheduling" -}}
{{- $errors := list }}
{{- with .Values }}

{{- range $i, $toleration := .scheduling.tolerations }}
{{- $key := printf "scheduling.tolerations[%d]" $i }}
{{- $operator := .operator | default "Equal" }}
{{- if and (not .key) (ne $operator "Exists") }}
{{- $errors = append $errors (printf "%s has no key and operator %s: name the taint's key, or set operator to Exists to tolerate every taint" $key $operator) }}
{{- end }}
{{- if and .value (eq $operator "Exists") }}
{{- $errors = append $errors (printf "%s.value is %s but operator is Exists, which compares no value: remove it or set operator to Equal" $key .value) }}
{{- end }}
{{- if and (hasKey . "tolerationSeconds") (ne (.effect | default "every") "NoExecute") }}
{{- $errors = append $errors (printf "%s.tolerationSeconds is set but effect is %s: set effect to NoExecute or remove it" $key (.effect | default "left out")) }}
{{- end }}
{{- end }}

{{- end }}
{{- toJson $errors }}
{{- end }}
