{{/* What a pod takes of its node, requests and limits; empty when nothing is asked for. */}}
{{- define "rankzero.resources" -}}
{{- $limits := dict }}
{{- $requests := dict }}
{{- $cpu := include "rankzero.cpu" . }}
{{- with .Values.resources }}
{{- if .gpus }}
{{- $_ := set $limits .gpuResource (int .gpus) }}
{{- end }}
{{- $limits = merge $limits (include "rankzero.hami.resources" $ | fromYaml) }}
{{- with .memory }}
{{- $_ := set $limits "memory" . }}
{{- end }}
{{- with .ephemeralStorage }}
{{- $_ := set $limits "ephemeral-storage" . }}
{{- end }}
{{- range $page, $amount := .hugepages }}
{{- $_ := set $limits (printf "hugepages-%s" $page) $amount }}
{{- end }}
{{- if $cpu }}
{{- $_ := set (ternary $requests $limits .cpuBurst) "cpu" $cpu }}
{{- end }}
{{- end }}
{{- with .Values.network.fabric.resource }}
{{- if .name }}
{{- $_ := set $limits .name (int .count) }}
{{- end }}
{{- end }}
{{- with $limits }}
limits:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with merge $requests $limits }}
requests:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* CPUs of a pod as a quantity; empty for none. */}}
{{- define "rankzero.cpu" -}}
{{- with .Values.resources }}
{{- ternary (mul 8 (int .gpus)) .cpu (eq (toString .cpu) "auto") }}
{{- end }}
{{- end }}

{{/* What to say about the CPUs of a pod, in a sentence; empty where there is nothing to say. */}}
{{- define "rankzero.cpuNote" -}}
{{- $cpu := include "rankzero.cpu" . }}
{{- $cpus := ternary (divf (trimSuffix "m" $cpu | float64) 1000.0) ($cpu | float64) (hasSuffix "m" $cpu) }}
{{- $gpus := int .Values.resources.gpus }}
{{- if and $gpus (not $cpu) }}
resources.cpu is empty: no CPUs are set aside for data loading. 8 to 12 a GPU are usual, here {{ mul 8 $gpus }} to {{ mul 12 $gpus }}.
{{- else if and $gpus (lt $cpus (mulf 8.0 $gpus)) }}
resources.cpu is {{ $cpu }} for {{ $gpus }} GPUs, fewer than 8 each: GPUs may wait for data.
{{- else if and $gpus (gt $cpus (mulf 12.0 $gpus)) }}
resources.cpu is {{ $cpu }} for {{ $gpus }} GPUs, more than 12 each: leave some to the node and to other pods.
{{- end }}
{{- end }}
