{{/* What a pod takes of its node. */}}
{{- define "rankzero.validate.resources" -}}
{{- $errors := list }}
{{- with .Values }}

{{- if and .shm.size .resources.memory }}
{{- if ge (include "rankzero.mebibytes" .shm.size | int64) (include "rankzero.mebibytes" .resources.memory | int64) }}
{{- $errors = append $errors (printf "shm.size is %s but resources.memory is %s, which counts /dev/shm too: set shm.size below it or raise resources.memory" .shm.size .resources.memory) }}
{{- end }}
{{- end }}

{{- with .resources }}
{{- $cpu := include "rankzero.cpu" $ }}
{{- if regexMatch "(gpu|vgpu)-?(mem|memory|cores|number|mem-percentage|memory-percentage)$" .gpuResource }}
{{- $errors = append $errors (printf "resources.gpuResource is %s, which counts parts of cards and not cards: name what the device plugin calls a card, e.g. nvidia.com/gpu" .gpuResource) }}
{{- end }}
{{- if regexMatch "^nvidia\\.com/gpu\\.(count|present|product|memory|family|machine|mode|replicas)$" .gpuResource }}
{{- $errors = append $errors (printf "resources.gpuResource is %s, a label of nodes and nothing that a pod can ask for: name what `kubectl describe node` lists below Allocatable, e.g. nvidia.com/gpu" .gpuResource) }}
{{- end }}
{{- if and (eq (toString .cpu) "auto") (eq (int .gpus) 0) }}
{{- $errors = append $errors "resources.cpu is auto but resources.gpus is 0, and auto counts GPUs: name the CPUs" }}
{{- end }}
{{- if .guaranteed }}
{{- $missing := list }}
{{- if not $cpu }}{{ $missing = append $missing "resources.cpu is empty: set it to a whole number" }}
{{- else if not (regexMatch "^([0-9]+|[0-9]+000m)$" $cpu) }}{{ $missing = append $missing (printf "resources.cpu is %s, and only whole CPUs are given to a pod alone: set it to a whole number" $cpu) }}{{ end }}
{{- if not .memory }}{{ $missing = append $missing "resources.memory is empty: set it" }}{{ end }}
{{- if .cpuBurst }}{{ $missing = append $missing "resources.cpuBurst is true: set it to false" }}{{ end }}
{{- range $missing }}
{{- $errors = append $errors (printf "resources.guaranteed is true but %s" .) }}
{{- end }}
{{- end }}
{{- range $page, $amount := .hugepages }}
{{- $key := printf "resources.hugepages.%s" $page }}
{{- if not (or $cpu $.Values.resources.memory) }}
{{- $errors = append $errors (printf "%s is %s but neither resources.cpu nor resources.memory is set, and Kubernetes wants one of them with huge pages: set resources.memory" $key $amount) }}
{{- end }}
{{- if mod (include "rankzero.mebibytes" $amount | int64) (include "rankzero.mebibytes" $page | int64) }}
{{- $errors = append $errors (printf "%s is %s, which is no multiple of the page: round it to one" $key $amount) }}
{{- end }}
{{- end }}
{{- end }}

{{- end }}
{{- toJson $errors }}
{{- end }}
