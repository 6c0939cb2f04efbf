{{/*
The pod template that every kind of workload shares. Takes a dict:
  root           the chart's root context
  kind           the workload's kind, e.g. StatefulSet
  nodeRankField  downward API field that holds the pod's index
*/}}
{{- define "rankzero.podTemplate" -}}
{{- $values := .root.Values -}}
metadata:
  labels:
    {{- include "rankzero.podLabels" .root | nindent 4 }}
  {{- with include "rankzero.podAnnotations" .root }}
  annotations:
    {{- . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "rankzero.serviceAccountName" .root | quote }}
  # With it the launcher scales its own workload to 0 when the run has ended.
  automountServiceAccountToken: {{ include "rankzero.mountsToken" .root }}
  enableServiceLinks: false
  {{- if $values.network.hostNetwork }}
  hostNetwork: true
  # The default would ask the resolver of the node, which does not know the Service.
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds | int }}
  {{- with $values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . | quote }}
    {{- end }}
  {{- end }}
  securityContext:
    {{- include "rankzero.podSecurityContext" .root | nindent 4 }}
  containers:
    {{- include "rankzero.trainer" . | nindent 4 }}
  volumes:
    {{- include "rankzero.volumes" .root | nindent 4 }}
  {{- include "rankzero.placement" .root | nindent 2 }}
{{- end }}
