{{/*
The pod template that every kind of workload shares. Takes a dict:
  root           the chart's root context
  nodeRankField  downward API field that holds the pod's index; none where there is one pod only
  firstNodeRank  node rank of index 0, unless that is 0
  hostname       of the pod, where its controller sets none and others look for it
  readyAtOnce    leaves the readiness probe out
  restartPolicy  where the API wants one in the template
*/}}
{{- define "rankzero.podTemplate" -}}
metadata:
  labels:
    {{- include "rankzero.podLabels" .root | nindent 4 }}
  {{- with include "rankzero.podAnnotations" .root }}
  annotations:
    {{- . | nindent 4 }}
  {{- end }}
spec:
  {{- include "rankzero.podSpec" . | nindent 2 }}
{{- end }}

{{/* Takes the same dict. */}}
{{- define "rankzero.podSpec" -}}
{{- $values := .root.Values -}}
{{- with .restartPolicy -}}
restartPolicy: {{ . }}
{{- end }}
{{- with .hostname }}
hostname: {{ . | quote }}
{{- end }}
{{- if ne $values.workload.kind "StatefulSet" }}
# With it the Service knows the pod by its host name; a StatefulSet's controller sets both.
subdomain: {{ .root.Release.Name | quote }}
{{- end }}
serviceAccountName: {{ include "rankzero.serviceAccountName" .root | quote }}
# With it the launcher frees its workload when the run has ended, and says in an Event how.
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
  {{- include "rankzero.podSecurityContext" .root | nindent 2 }}
{{- with include "rankzero.codeInit" .root | trim }}
initContainers:
  {{- . | nindent 2 }}
{{- end }}
containers:
  {{- include "rankzero.trainer" . | nindent 2 }}
volumes:
  {{- include "rankzero.volumes" .root | nindent 2 }}
{{- include "rankzero.placement" .root | nindent 0 }}
{{- end }}
