{{/* HAMi: what it would misread, ignore or refuse without saying so. */}}
{{- define "rankzero.validate.hami" -}}
{{- $errors := list }}
{{- with .Values.hami }}

{{- if not .enabled }}
{{- range $key := list "memory" "memoryPercent" "cores" "cardPolicy" "nodePolicy" "cardTypes" "avoidCardTypes" "cardUuids" "avoidCardUuids" }}
{{- with get $.Values.hami $key }}
{{- $errors = append $errors (printf "hami.%s is set but hami.enabled is false, so it would count for nothing: set hami.enabled to true or remove it" $key) }}
{{- end }}
{{- end }}
{{- else }}

{{- $resources := $.Values.resources }}
{{- if not $resources.gpus }}
{{- $errors = append $errors "hami.enabled is true but resources.gpus is 0, and HAMi starts such a pod with no card accounted to it: set resources.gpus to the cards of a pod" }}
{{- end }}
{{- if ne $resources.gpuResource "nvidia.com/gpu" }}
{{- $errors = append $errors (printf "resources.gpuResource is %s but hami.enabled is true, whose memory and compute belong to nvidia.com/gpu: remove resources.gpuResource" $resources.gpuResource) }}
{{- end }}

{{- $memory := include "rankzero.hami.memory" $ }}
{{- $mebibytes := include "rankzero.hami.mebibytes" $ }}
{{- if $mebibytes }}
{{- if lt (int64 $mebibytes) 512 }}
{{- $errors = append $errors (printf "hami.memory is %s, which HAMi takes for %s MiB, less than CUDA needs for itself: write MiB, e.g. %d for %s GiB" $memory $mebibytes (mul (int64 $mebibytes) 1024) $mebibytes) }}
{{- end }}
{{- else if regexMatch "^[0-9]+(\\.[0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)$" $memory }}
{{- $bytes := mulf (include "rankzero.mebibytes" $memory | float64) 1048576.0 }}
{{- $factor := get (dict "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0) (regexFind "[A-Za-z]+$" $memory) }}
{{- $read := mulf (regexFind "^[0-9.]+" $memory | float64) $factor | int64 }}
{{- if gt $read 2147483647 }}
{{- $errors = append $errors (printf "hami.memory is %s, which is too large a number for HAMi: it would start the pod with no card accounted to it; write MiB, here %s" $memory (include "rankzero.mebibytes" $memory)) }}
{{- else if gt $read 1000000 }}
{{- $errors = append $errors (printf "hami.memory is %s, which HAMi takes for %d MiB, more than any card has; write MiB, here %s" $memory $read (include "rankzero.mebibytes" $memory)) }}
{{- else }}
{{- $errors = append $errors (printf "hami.memory is %s, which HAMi takes for %d MiB: write %d" $memory $read $read) }}
{{- end }}
{{- else if $memory }}
{{- $errors = append $errors (printf "hami.memory is %s, which is no whole number of MiB: write e.g. 12000 or 12k" $memory) }}
{{- end }}

{{- if and .memory .memoryPercent }}
{{- $errors = append $errors (printf "hami.memory is %s and hami.memoryPercent is %d, of which HAMi reads the first only: remove one of them" $memory (int .memoryPercent)) }}
{{- end }}
{{- $parts := eq (include "rankzero.hami.takesParts" $) "true" }}
{{- if and .cores (not $parts) }}
{{- $errors = append $errors (printf "hami.cores is %d but neither hami.memory nor hami.memoryPercent is set, which is to ask for whole cards: set one of them or remove hami.cores" (int .cores)) }}
{{- end }}
{{- $ranks := mul (int $.Values.nodes) (include "rankzero.procsPerNode" $ | int) }}
{{- if and $parts (gt $ranks 1) (not .cardPolicy) (ne (int .cores) 100) }}
{{- $errors = append $errors (printf "%s is set and %d ranks train together, which are all as slow as the one whose card others use most: set hami.cardPolicy to mutex for cards that are idle at the start, or to spread or binpack to share them all the same" (ternary "hami.memory" "hami.memoryPercent" (not (empty .memory))) $ranks) }}
{{- end }}
{{- $cards := mul (int $.Values.nodes) (int $resources.gpus) }}
{{- if and .cardUuids (lt (len .cardUuids) (int $cards)) }}
{{- $errors = append $errors (printf "hami.cardUuids names %d cards but nodes and resources.gpus make %d: name them all or remove it" (len .cardUuids) $cards) }}
{{- end }}

{{- $scheduling := $.Values.scheduling }}
{{- if has $scheduling.gang (list "volcano" "coscheduling") }}
{{- $errors = append $errors (printf "hami.enabled is true but scheduling.gang is %s, and one scheduler places a pod: set scheduling.gang to none" $scheduling.gang) }}
{{- end }}
{{- if has $scheduling.schedulerName (list "default-scheduler" "volcano" "scheduler-plugins-scheduler") }}
{{- $errors = append $errors (printf "scheduling.schedulerName is %s but hami.enabled is true, and HAMi leaves such pods alone: leave the name empty" $scheduling.schedulerName) }}
{{- end }}
{{- if hasKey $.Values.podLabels "hami.io/webhook" }}
{{- $errors = append $errors "podLabels[hami.io/webhook] is set but hami.enabled is true, and HAMi leaves such pods alone: remove it" }}
{{- end }}
{{- $keys := dict
      "hami.io/gpu-scheduler-policy" "cardPolicy"
      "hami.io/node-scheduler-policy" "nodePolicy"
      "nvidia.com/use-gputype" "cardTypes"
      "nvidia.com/nouse-gputype" "avoidCardTypes"
      "nvidia.com/use-gpuuuid" "cardUuids"
      "nvidia.com/nouse-gpuuuid" "avoidCardUuids" }}
{{- range $name, $_ := $.Values.podAnnotations }}
{{- with get $keys $name }}
{{- $errors = append $errors (printf "podAnnotations[%s] is set, where HAMi takes an unknown value without a word: use hami.%s" $name .) }}
{{- end }}
{{- end }}
{{- $keys = dict "CUDA_DISABLE_CONTROL" "passThrough" "NCCL_P2P_DISABLE" "ncclDirect" "NCCL_SHM_DISABLE" "ncclDirect" }}
{{- range $name, $_ := $.Values.network.env }}
{{- with get $keys $name }}
{{- $errors = append $errors (printf "network.env.%s is set but hami.enabled is true: use hami.%s" $name .) }}
{{- end }}
{{- end }}

{{- end }}
{{- end }}
{{- toJson $errors }}
{{- end }}
