{{/* Where pods may run: one a node, on the nodes that the values allow. */}}
{{- define "rankzero.placement" -}}
# With minDomains this is "never two on one node", also when too few nodes are free.
topologySpreadConstraints:
  - topologyKey: kubernetes.io/hostname
    maxSkew: 1
    minDomains: {{ .Values.nodes | int }}
    whenUnsatisfiable: DoNotSchedule
    labelSelector:
      matchLabels:
        {{- include "rankzero.selectorLabels" . | nindent 8 }}
{{- with include "rankzero.affinity" . | fromYaml }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.scheduling }}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}

{{/* The user's affinity with the rule of scheduling.nodeProfile added. */}}
{{- define "rankzero.affinity" -}}
{{- $affinity := deepCopy .Values.scheduling.affinity }}
{{- $node := dig "nodeAffinity" dict $affinity }}
{{- $prepared := dict "key" "rankzero.io/node-profile" "operator" "Exists" }}
{{- /* Without quotes YAML reads `off` as false. */}}
{{- $profile := toString .Values.scheduling.nodeProfile }}
{{- if eq $profile "required" }}
{{- $terms := list }}
{{- range dig "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" (list dict) $node }}
{{- $rules := append (dig "matchExpressions" list .) $prepared }}
{{- $terms = append $terms (merge (dict "matchExpressions" $rules) .) }}
{{- end }}
{{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) }}
{{- else if eq $profile "preferred" }}
{{- $rule := dict "weight" 100 "preference" (dict "matchExpressions" (list $prepared)) }}
{{- $preferred := append (dig "preferredDuringSchedulingIgnoredDuringExecution" list $node) $rule }}
{{- $_ := set $node "preferredDuringSchedulingIgnoredDuringExecution" $preferred }}
{{- end }}
{{- with $node }}
{{- $_ := set $affinity "nodeAffinity" . }}
{{- end }}
{{- toYaml $affinity }}
{{- end }}
