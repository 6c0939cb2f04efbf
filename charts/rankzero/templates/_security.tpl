{{/* What the pods may do. With these every container meets the `restricted` pod security standard. */}}
{{- define "rankzero.podSecurityContext" -}}
runAsNonRoot: true
{{- with .Values.securityContext }}
runAsUser: {{ .runAsUser | int64 }}
runAsGroup: {{ .runAsGroup | int64 }}
fsGroup: {{ .fsGroup | int64 }}
{{- with .supplementalGroups }}
supplementalGroups: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
# Without it the kubelet walks through all checkpoints at every start.
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/*
Of every container, the trainer's init steps too. IPC_LOCK is not added for RDMA: it has no effect for a process that is
not root, and `restricted` and `baseline` would not admit the pod any more.
*/}}
{{- define "rankzero.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
