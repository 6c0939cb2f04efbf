{{/*
HAMi mode: cards are asked for by memory and compute, and HAMi's scheduler places the pods. Without an amount of memory
the release gets whole cards.
*/}}

{{/* hami.memory in MiB; empty where it is not set or HAMi would take it for something else (_validate-hami.tpl). */}}
{{- define "rankzero.hami.mebibytes" -}}
{{- $memory := include "rankzero.hami.memory" . }}
{{- if regexMatch "^[1-9][0-9]*k?$" $memory }}
{{- $memory | replace "k" "000" }}
{{- end }}
{{- end }}

{{/* hami.memory as it was written; Helm reads a number as a float. */}}
{{- define "rankzero.hami.memory" -}}
{{- with .Values.hami.memory }}
{{- ternary (int64 .) . (kindIs "float64" .) }}
{{- end }}
{{- end }}

{{/* Whether the release shares cards: "true" or "false". */}}
{{- define "rankzero.hami.takesParts" -}}
{{- with .Values.hami }}
{{- not (not (and .enabled (or .memory .memoryPercent))) }}
{{- end }}
{{- end }}

{{/* What stands beside the number of cards, in requests and limits. */}}
{{- define "rankzero.hami.resources" -}}
{{- if eq (include "rankzero.hami.takesParts" .) "true" }}
{{- with include "rankzero.hami.mebibytes" . }}
nvidia.com/gpumem: {{ . }}
{{- end }}
{{- with .Values.hami.memoryPercent }}
nvidia.com/gpumem-percentage: {{ int . }}
{{- end }}
{{- with .Values.hami.cores }}
nvidia.com/gpucores: {{ int . }}
{{- end }}
{{- else if .Values.hami.enabled }}
# An idle card, and nobody else on it. HAMi's webhook would add it, but its failure is ignored.
nvidia.com/gpucores: 100
{{- end }}
{{- end }}

{{- define "rankzero.hami.podAnnotations" -}}
{{- with .Values.hami }}
{{- $annotations := dict
      "hami.io/gpu-scheduler-policy" .cardPolicy
      "hami.io/node-scheduler-policy" .nodePolicy
      "nvidia.com/use-gputype" (join "," .cardTypes)
      "nvidia.com/nouse-gputype" (join "," .avoidCardTypes)
      "nvidia.com/use-gpuuuid" (join "," .cardUuids)
      "nvidia.com/nouse-gpuuuid" (join "," .avoidCardUuids) }}
{{- range $name, $value := $annotations }}
{{- with $value }}
{{ $name }}: {{ . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* HAMi's device plugin looks for these in the container itself: a variable from elsewhere would not count. */}}
{{- define "rankzero.hami.env" -}}
{{- if .Values.hami.enabled }}
{{- if and .Values.hami.passThrough (eq (include "rankzero.hami.takesParts" .) "false") }}
{{ include "rankzero.env.value" (list "CUDA_DISABLE_CONTROL" "true") }}
{{- end }}
{{- if not .Values.hami.ncclDirect }}
{{ include "rankzero.env.value" (list "NCCL_P2P_DISABLE" "1") }}
{{ include "rankzero.env.value" (list "NCCL_SHM_DISABLE" "1") }}
{{- end }}
{{- end }}
{{- end }}
