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

{{/* Of every container, the trainer's init steps too. */}}
{{- define "rankzero.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  {{- if .Values.network.fabric.ipcLock }}
  add: [IPC_LOCK]
  {{- end }}
{{- end }}
