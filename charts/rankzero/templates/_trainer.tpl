{{/* The one container. Takes the same dict as rankzero.podTemplate. */}}
{{- define "rankzero.trainer" -}}
- name: {{ include "rankzero.containerName" .root }}
  image: {{ include "rankzero.image" .root | quote }}
  imagePullPolicy: {{ .root.Values.image.pullPolicy | quote }}
  command: [rankzero, launch]
  {{- if include "rankzero.codeSources" .root | fromJsonArray }}
  workingDir: {{ .root.Values.code.mountPath | quote }}
  {{- end }}
  env:
    {{- include "rankzero.env" . | nindent 4 }}
  ports:
    {{- include "rankzero.containerPorts" .root | trim | nindent 4 }}
  {{- with include "rankzero.resources" .root | trim }}
  resources:
    {{- . | nindent 4 }}
  {{- end }}
  startupProbe:
    httpGet: {path: /healthz, port: status}
    periodSeconds: 2
    failureThreshold: 60
  {{- if not .readyAtOnce }}
  readinessProbe:
    httpGet: {path: /readyz, port: status}
    periodSeconds: 5
    timeoutSeconds: 5
  {{- end }}
  # The launcher answers from its own process, however busy the ranks are.
  livenessProbe:
    httpGet: {path: /healthz, port: status}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  terminationMessagePolicy: FallbackToLogsOnError
  securityContext:
    {{- include "rankzero.containerSecurityContext" .root | nindent 4 }}
  volumeMounts:
    {{- include "rankzero.volumeMounts" .root | nindent 4 }}
{{- end }}
