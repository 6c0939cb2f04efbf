{{/*
The training script where the image does not hold it: files that the chart keeps in a ConfigMap, an existing ConfigMap,
a claim, an NFS export, a folder of the nodes, or a revision that an init container fetches with git.
*/}}

{{/* The sources given, as a JSON list: validate.yaml refuses more than one. */}}
{{- define "rankzero.codeSources" -}}
{{- $given := list }}
{{- range list "files" "configMap" "claim" "nfs" "hostPath" }}
{{- if get $.Values.code . }}
{{- $given = append $given . }}
{{- end }}
{{- end }}
{{- if .Values.code.git.repository }}
{{- $given = append $given "git" }}
{{- end }}
{{- toJson $given }}
{{- end }}

{{/* A script where `code` would put it, without any; an image may hold it there. Empty where there is nothing to say. */}}
{{- define "rankzero.codeNote" -}}
{{- $script := .Values.launch.script | default "" }}
{{- if and (hasPrefix (print .Values.code.mountPath "/") $script) (not (include "rankzero.codeSources" . | fromJsonArray)) }}
launch.script is {{ $script }} but code has no source: the image must hold it, or no rank starts.
{{- end }}
{{- end }}

{{/* What names the code, for the hash of the settings: pods with other code belong to another version of the release. */}}
{{- define "rankzero.codeIdentity" -}}
{{- if include "rankzero.codeSources" . | fromJsonArray }}
{{- toJson .Values.code }}
{{- end }}
{{- end }}

{{/* Name of the ConfigMap with the files. Other files are another object, as with rankzero.configName. */}}
{{- define "rankzero.codeConfigName" -}}
{{- printf "%s-code-%s" .Release.Name (toJson .Values.code.files | sha256sum | trunc 12) }}
{{- end }}

{{- define "rankzero.codeVolumes" -}}
{{- if include "rankzero.codeSources" . | fromJsonArray }}
- name: code
{{- with .Values.code }}
{{- if .files }}
  configMap:
    name: {{ include "rankzero.codeConfigName" $ | quote }}
{{- else if .configMap }}
  configMap:
    name: {{ .configMap | quote }}
{{- else if .git.repository }}
  emptyDir: {}
{{- with .git.secret }}
- name: code-credentials
  secret:
    secretName: {{ . | quote }}
    defaultMode: 0440
{{- end }}
{{- else }}
  {{- include "rankzero.volumeSource" . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "rankzero.codeMount" -}}
{{- if include "rankzero.codeSources" . | fromJsonArray }}
{{- with .Values.code }}
- name: code
  mountPath: {{ .mountPath | quote }}
  readOnly: {{ .readOnly }}
  {{- with compact (list (ternary "checkout" "" (ne .git.repository "")) .subPath) }}
  subPath: {{ join "/" . | quote }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Fetches the revision before the trainer starts; empty for every other source. Takes the chart's root context. */}}
{{- define "rankzero.codeInit" -}}
{{- with .Values.code.git }}
{{- if .repository }}
- name: {{ (include "rankzero.launchDefaults" $ | fromJson).codeContainerName }}
  image: {{ include "rankzero.image" $ | quote }}
  imagePullPolicy: {{ $.Values.image.pullPolicy | quote }}
  command: [rankzero, fetch-code]
  # In a folder of its own, since git works only in one that belongs to its user.
  args: [{{ .repository | quote }}, {{ .revision | quote }}, /code/checkout]
  env:
    {{- include "rankzero.env.noGpu" $ | nindent 4 }}
    {{- range $name, $value := $.Values.network.env }}
    {{- include "rankzero.env.value" (list $name $value) | nindent 4 }}
    {{- end }}
  # Requests as limits keep a Guaranteed pod one; half a CPU is pinned to none.
  resources:
    {{- $resources := dict "cpu" "500m" "memory" ($.Values.resources.memory | default "1Gi") }}
    limits: {{- toYaml $resources | nindent 6 }}
    requests: {{- toYaml $resources | nindent 6 }}
  terminationMessagePolicy: FallbackToLogsOnError
  securityContext:
    {{- include "rankzero.containerSecurityContext" $ | nindent 4 }}
  volumeMounts:
    - name: code
      mountPath: /code
    - name: tmp
      mountPath: /tmp
    {{- if .secret }}
    - name: code-credentials
      mountPath: /etc/rankzero-code
      readOnly: true
    {{- end }}
{{- end }}
{{- end }}
{{- end }}
