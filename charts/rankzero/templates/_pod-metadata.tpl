{{/* Labels of the pods: those by which the chart finds them, its gang's, the user's and its network's. */}}
{{- define "rankzero.podLabels" -}}
{{- $labels := include "rankzero.selectorLabels" . | fromYaml }}
{{- $labels = merge $labels (include "rankzero.gang.podLabels" . | fromYaml) .Values.podLabels }}
{{- $labels = merge $labels (include "rankzero.network.podLabels" . | fromYaml) }}
{{- toYaml $labels }}
{{- end }}

{{/* Annotations of the pods; empty without any. */}}
{{- define "rankzero.podAnnotations" -}}
{{- $annotations := include "rankzero.gang.podAnnotations" . | fromYaml }}
{{- $annotations = merge $annotations (include "rankzero.hami.podAnnotations" . | fromYaml) }}
{{- /* The user's go before those that keep meshes out. */}}
{{- with merge $annotations .Values.podAnnotations (include "rankzero.network.podAnnotations" . | fromYaml) }}
{{- toYaml . }}
{{- end }}
{{- end }}

{{/* metadata of the object that owns the pods. */}}
{{- define "rankzero.workloadMetadata" -}}
{{ include "rankzero.metadata" . }}
{{- with .Values.scheduling.kueue }}
{{- with .queue }}
  kueue.x-k8s.io/queue-name: {{ . | quote }}
{{- end }}
{{- with .priorityClass }}
  kueue.x-k8s.io/priority-class: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}
