{{/* Labels that keep service meshes out of the pods. */}}
{{- define "rankzero.network.podLabels" -}}
{{- if .Values.network.meshOptOut }}
sidecar.istio.io/inject: "false"
istio.io/dataplane-mode: none
{{- end }}
{{- end }}

{{/* Annotations that do the same, and those that ask for further networks. */}}
{{- define "rankzero.network.podAnnotations" -}}
{{- if .Values.network.meshOptOut }}
linkerd.io/inject: disabled
{{- end }}
{{- with .Values.network.secondary }}
k8s.v1.cni.cncf.io/networks: {{ join "," . | quote }}
{{- end }}
{{- end }}
