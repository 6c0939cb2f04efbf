{{/* Where pods may run: one a node, on the nodes that the values allow, and who places them. */}}
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
{{- with .runtimeClassName }}
runtimeClassName: {{ . | quote }}
{{- end }}
{{- end }}
{{- with include "rankzero.schedulerName" . }}
schedulerName: {{ . | quote }}
{{- end }}
{{- if eq .Values.scheduling.gang "native" }}
schedulingGroup:
  podGroupName: {{ .Release.Name | quote }}
{{- end }}
{{- end }}

{{/* The scheduler that the values name, else that of HAMi or of the gang; empty means the cluster's own. */}}
{{- define "rankzero.schedulerName" -}}
{{- $ofGang := dict "volcano" "volcano" "coscheduling" "scheduler-plugins-scheduler" }}
{{- $ofMode := ternary "hami-scheduler" (get $ofGang .Values.scheduling.gang) .Values.hami.enabled }}
{{- .Values.scheduling.schedulerName | default $ofMode }}
{{- end }}
