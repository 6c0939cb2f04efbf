{{/*
What comes from the values or the release is quoted wherever it is written: YAML reads the release name `on` as a
truth value and the tag `1:1` as a number.
*/}}

{{/* Image reference: repository[:tag][@digest]. */}}
{{- define "rankzero.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ with .tag }}:{{ . }}{{ end }}{{ with .digest }}@{{ . }}{{ end }}
{{- end -}}
{{- end }}

{{/* Labels that select the pods. StatefulSets cannot change them, so nothing with a version belongs here. */}}
{{- define "rankzero.selectorLabels" -}}
app.kubernetes.io/name: rankzero
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "rankzero.labels" -}}
{{ include "rankzero.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{/* metadata of an object named after the release. */}}
{{- define "rankzero.metadata" -}}
name: {{ .Release.Name | quote }}
namespace: {{ .Release.Namespace | quote }}
labels:
  {{- include "rankzero.labels" . | nindent 2 }}
{{- end }}

{{/* run.id, which may be given as a number: Helm reads one from a file as a float. */}}
{{- define "rankzero.runId" -}}
{{- ternary .Values.run.id (int64 .Values.run.id) (kindIs "string" .Values.run.id) }}
{{- end }}

{{- define "rankzero.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary .Release.Name "default" .Values.serviceAccount.create) }}
{{- end }}

{{/* Whether the pods hold their account's token: "true" or "false". */}}
{{- define "rankzero.mountsToken" -}}
{{- $automount := toString .Values.serviceAccount.automount }}
{{- ternary .Values.rbac.create (eq $automount "true") (eq $automount "auto") }}
{{- end }}

{{- define "rankzero.checkpointClaim" -}}
{{- .Values.checkpoints.existingClaim | default (printf "%s-checkpoints" .Release.Name) }}
{{- end }}

{{/* Ranks per pod. */}}
{{- define "rankzero.procsPerNode" -}}
{{- .Values.procsPerNode | default .Values.resources.gpus | default 1 | int }}
{{- end }}

{{/* train.yaml. Keys that the values leave out stay out: the launcher knows its own defaults. */}}
{{- define "rankzero.trainConfig" -}}
{{- $shape := dict "nodes" (.Values.nodes | int) "procsPerNode" (include "rankzero.procsPerNode" . | int) }}
{{- if .Values.network.hostNetwork }}
{{- $shape = merge $shape (include "rankzero.ports" . | fromJson) }}
{{- end }}
{{- with include "rankzero.fabricConfig" . }}
{{- $_ := set $shape "fabric" (fromJson .) }}
{{- end }}
{{- $train := .Values.train }}
{{- if .Values.checkpoints.local.enabled }}
{{- $train = merge (dict "checkpoint" (dict "localPath" "/local-checkpoints")) $train }}
{{- end }}
{{- dict "launch" (merge $shape .Values.launch) "train" $train | toYaml }}
{{- end }}

{{/* First 12 digits of the SHA-256 of train.yaml and of what names the code. */}}
{{- define "rankzero.configHash" -}}
{{- printf "%s%s" (include "rankzero.trainConfig" .) (include "rankzero.codeIdentity" .) | sha256sum | trunc 12 }}
{{- end }}

{{/* Name of the ConfigMap. Other settings are another object, so a running pod keeps those it started with. */}}
{{- define "rankzero.configName" -}}
{{- printf "%s-%s" .Release.Name (include "rankzero.configHash" .) }}
{{- end }}

{{/* Seconds that a pod needs to save and stop: the values given, else the launcher's own defaults. */}}
{{- define "rankzero.leaveSeconds" -}}
{{- $defaults := include "rankzero.launchDefaults" . | fromJson }}
{{- $save := dig "saveTimeout" $defaults.saveTimeout .Values.launch }}
{{- add $save (dig "stopTimeout" $defaults.stopTimeout .Values.launch) $defaults.leaveMargin }}
{{- end }}

{{/* A quantity with a unit, such as 1.5Gi, in whole bytes. */}}
{{- define "rankzero.bytes" -}}
{{- $bytes := dict "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 }}
{{- mulf (regexFind "^[0-9.]+" . | float64) (get $bytes (regexFind "[A-Za-z]+$" .)) | floor | int64 }}
{{- end }}

{{/* The same in whole MiB, rounded down. */}}
{{- define "rankzero.mebibytes" -}}
{{- div (include "rankzero.bytes" . | int64) 1048576 }}
{{- end }}

{{/* Bound of /dev/shm as a quantity. */}}
{{- define "rankzero.shmSize" -}}
{{- $ranks := include "rankzero.procsPerNode" . | int64 }}
{{- if .Values.shm.size }}
{{- .Values.shm.size }}
{{- else if .Values.shm.loader }}
{{- $defaults := include "rankzero.launchDefaults" . | fromJson }}
{{- $loader := dict }}
{{- range $key, $default := $defaults.dataLoader }}
{{- $_ := set $loader $key (dig $key (dig "dataLoader" $key $default $.Values.train) $.Values.shm.loader) }}
{{- end }}
{{- with .Values.shm.loader }}
{{- /* Every worker holds `prefetch` batches, and the rank the one it works on. */}}
{{- $batches := mul $loader.workers $loader.prefetch | add1 }}
{{- $rank := mul $batches (include "rankzero.bytes" .batch | int64) | add 1048575 }}
{{- printf "%dMi" (mul $ranks (add (div $rank 1048576) 256)) }}
{{- end }}
{{- else if .Values.resources.memory }}
{{- printf "%dMi" (div (include "rankzero.mebibytes" .Values.resources.memory | int64) 2 | max 1) }}
{{- else }}
{{- printf "%dGi" $ranks }}
{{- end }}
{{- end }}
