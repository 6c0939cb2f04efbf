{{/*
Environment of the trainer container: first the contract with the launcher (a closed list, see
rankzero/contract.py), then NCCL and gloo, then the user's own. Takes the same dict as rankzero.podTemplate.
*/}}
{{- define "rankzero.env" -}}
{{- $release := .root.Release -}}
- name: RANKZERO_CONFIG
  value: /etc/rankzero/train.yaml
- name: RANKZERO_CONFIG_HASH
  value: {{ include "rankzero.configHash" .root | quote }}
- name: RANKZERO_RUN_NAME
  value: {{ $release.Name | quote }}
- name: RANKZERO_RUN_ID
  value: {{ include "rankzero.runId" .root | quote }}
- name: RANKZERO_WORKLOAD
  value: {{ printf "%s/%s" .root.Values.workload.kind $release.Name | quote }}
- name: RANKZERO_RANK0_HOST
  value: {{ include "rankzero.rank0Host" .root | quote }}
- name: RANKZERO_STATE_ROOT
  value: /checkpoints
- name: RANKZERO_GRACE_SECONDS
  value: {{ .root.Values.terminationGracePeriodSeconds | int | quote }}
- name: RANKZERO_FIRST_NODE_RANK
  value: {{ .firstNodeRank | default 0 | quote }}
{{- if .nodeRankField }}
{{ include "rankzero.env.field" (list "RANKZERO_NODE_RANK" .nodeRankField) }}
{{- else }}
- name: RANKZERO_NODE_RANK
  value: "0"
{{- end }}
{{ include "rankzero.env.field" (list "RANKZERO_NAMESPACE" "metadata.namespace") }}
{{ include "rankzero.env.field" (list "RANKZERO_POD_NAME" "metadata.name") }}
{{ include "rankzero.env.field" (list "RANKZERO_POD_UID" "metadata.uid") }}
{{ include "rankzero.env.field" (list "RANKZERO_POD_IP" "status.podIP") }}
{{ include "rankzero.env.field" (list "RANKZERO_NODE_NAME" "spec.nodeName") }}
{{- if not .root.Values.resources.gpus }}
{{ include "rankzero.env.noGpu" . }}
{{- end }}
{{- with include "rankzero.objectStorageEnv" .root | trim }}
{{ . }}
{{- end }}
{{- with include "rankzero.fabricEnv" .root | trim }}
{{ . }}
{{- end }}
{{- with include "rankzero.hami.env" .root | trim }}
{{ . }}
{{- end }}
{{- with .root.Values.network }}
{{- with .interface }}
# Here too the = takes names whole; gloo always does.
{{ include "rankzero.env.value" (list "NCCL_SOCKET_IFNAME" (print "=" .)) }}
{{ include "rankzero.env.value" (list "GLOO_SOCKET_IFNAME" .) }}
{{- end }}
{{- with .ncclDebug }}
{{ include "rankzero.env.value" (list "NCCL_DEBUG" .) }}
{{- end }}
{{- range $name, $value := .env }}
{{ include "rankzero.env.value" (list $name $value) }}
{{- end }}
{{- end }}
{{- range $name, $from := .root.Values.secretEnv }}
- name: {{ $name | quote }}
  valueFrom:
    secretKeyRef:
      name: {{ $from.secret | quote }}
      key: {{ $from.key | quote }}
{{- end }}
{{- end }}

{{/*
Keeps GPUs from a container that asks for none: images on CUDA say `all`, and where NVIDIA's runtime is the default one
they would get all of the node's.
*/}}
{{- define "rankzero.env.noGpu" -}}
{{- include "rankzero.env.value" (list "NVIDIA_VISIBLE_DEVICES" "void") }}
{{- end }}

{{/* One variable with its value. */}}
{{- define "rankzero.env.value" -}}
- name: {{ index . 0 | quote }}
  value: {{ index . 1 | quote }}
{{- end }}

{{/* One variable from the downward API. */}}
{{- define "rankzero.env.field" -}}
- name: {{ index . 0 }}
  valueFrom:
    fieldRef:
      fieldPath: {{ index . 1 }}
{{- end }}
