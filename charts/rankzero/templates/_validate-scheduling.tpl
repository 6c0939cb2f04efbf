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

{{- $host := get .scheduling.nodeSelector "kubernetes.io/hostname" }}
{{- if and $host (gt (int .nodes) 1) }}
{{- $errors = append $errors (printf "scheduling.nodeSelector[kubernetes.io/hostname] is %s but nodes is %d, and a machine takes one pod of the release: set nodes to 1 or choose a label that %d machines carry" $host (int .nodes) (int .nodes)) }}
{{- end }}
{{- if and $host (has $host .scheduling.avoidNodes) }}
{{- $errors = append $errors (printf "scheduling.nodeSelector[kubernetes.io/hostname] is %s, which scheduling.avoidNodes forbids: remove it from one of them" $host) }}
{{- end }}
{{- if eq .scheduling.topology.key "kubernetes.io/hostname" }}
{{- $errors = append $errors "scheduling.topology.key is kubernetes.io/hostname, and pods of a release never share a node: name the label of a rack or network block" }}
{{- end }}
{{- if and .scheduling.nodeProfileHash (ne (toString .scheduling.nodeProfile) "required") }}
{{- $errors = append $errors (printf "scheduling.nodeProfileHash is %s but scheduling.nodeProfile is %v, which admits nodes without it: set nodeProfile to required or remove the hash" .scheduling.nodeProfileHash (ternary .scheduling.nodeProfile "off" (kindIs "string" .scheduling.nodeProfile))) }}
{{- end }}

{{- end }}
{{- toJson $errors }}
{{- end }}
