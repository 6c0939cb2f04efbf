{{/* How the training is spread over the ranks, and what it computes with. */}}
{{- define "rankzero.validate.train" -}}
{{- $errors := list }}
{{- $procs := include "rankzero.procsPerNode" . | int }}
{{- with .Values.train }}

{{- $parallel := dig "parallel" dict . }}
{{- $strategy := dig "strategy" "auto" $parallel }}
{{- $nodes := int $.Values.nodes }}
{{- $world := mul $nodes $procs | int }}

{{- if and (eq $strategy "data-parallel") (ne $world 1) }}
{{- $errors = append $errors (printf "train.parallel.strategy is data-parallel, which is one process, but nodes is %d and a pod has %d: set nodes and procsPerNode to 1, or the strategy to ddp" $nodes $procs) }}
{{- else if and (eq $strategy "ddp") (not (has (dig "shard" 0 $parallel | int) (list 0 1))) }}
{{- $errors = append $errors (printf "train.parallel.shard is %d but train.parallel.strategy is ddp, which shards nothing: remove it or set the strategy to hsdp" (int $parallel.shard)) }}
{{- else if and (eq $strategy "fsdp") (not (has (dig "replicate" 0 $parallel | int) (list 0 1))) }}
{{- $errors = append $errors (printf "train.parallel.replicate is %d but train.parallel.strategy is fsdp, which replicates nothing: remove it or set the strategy to hsdp" (int $parallel.replicate)) }}
{{- else if gt $world 0 }}

{{- $sizes := include "rankzero.meshSizes" $ | fromJson }}
{{- $open := list }}
{{- $named := list }}
{{- $product := 1 }}
{{- range $name := list "pipeline" "replicate" "shard" "tensor" }}
{{- $size := get $sizes $name | int }}
{{- if eq $size -1 }}{{ $open = append $open $name }}{{ else }}{{ $product = mul $product $size | int }}{{ end }}
{{- if gt $size 1 }}{{ $named = append $named (printf "%s is %d" $name $size) }}{{ end }}
{{- end }}
{{- $told := join ", " $named | default "every size is 1" }}
{{- if gt (len $open) 1 }}
{{- $errors = append $errors (printf "train.parallel has %s as -1, and only one of them can be the rest of the ranks: set the others to numbers" (join " and " $open)) }}
{{- else if and $open (mod $world $product) }}
{{- $errors = append $errors (printf "train.parallel: %s, so %d ranks belong together, which do not divide the %d that nodes (%d) and procsPerNode (%d) make: choose sizes whose product divides %d, or other nodes" $told $product $world $nodes $procs $world) }}
{{- else if and (not $open) (ne $world $product) }}
{{- $errors = append $errors (printf "train.parallel: %s, which makes a world of %d, but nodes (%d) and procsPerNode (%d) make %d: choose sizes whose product is %d, or leave one of them to the rest with -1" $told $product $nodes $procs $world $world) }}
{{- else }}
{{- $stages := ternary (div $world $product) (int64 $sizes.pipeline) (has "pipeline" $open) }}
{{- $accumulate := dig "accumulate" 1 . | int64 }}
{{- if lt $accumulate $stages }}
{{- $errors = append $errors (printf "train.accumulate is %d but train.parallel.pipeline makes %d stages, most of which would wait: set train.accumulate to at least %d; four times as many micro-batches keep the stages busy" $accumulate $stages $stages) }}
{{- end }}
{{- end }}
{{- end }}

{{- if eq $strategy "data-parallel" }}
{{- range $key, $without := dict "precision" "fp32" "activationCheckpointing" "none" "compile" false }}
{{- $value := dig $key $without $.Values.train }}
{{- if ne $value $without }}
{{- $errors = append $errors (printf "train.%s is %v but train.parallel.strategy is data-parallel, whose copies of the model do without: remove it or set the strategy to ddp" $key $value) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (eq (dig "precision" "fp32" .) "fp16") (eq (int $.Values.resources.gpus) 0) }}
{{- $errors = append $errors "train.precision is fp16 but resources.gpus is 0, and fp16 needs a GPU: ask for GPUs or set train.precision to bf16 or fp32" }}
{{- end }}

{{- $checkpoint := dig "checkpoint" dict . }}
{{- if and (eq (dig "interval" "fixed" $checkpoint) "fixed") (not (dig "everySteps" 1 $checkpoint)) (not (dig "everyMinutes" 0 $checkpoint)) }}
{{- $errors = append $errors "train.checkpoint.everySteps and train.checkpoint.everyMinutes are both 0, so no checkpoint would be written: set one of them, or train.checkpoint.interval to auto" }}
{{- end }}

{{- end }}
{{- toJson $errors }}
{{- end }}

{{/*
Sizes of the mesh with the strategy's choice where they are 0; -1 is the rest of the ranks. The same as
ParallelConfig of rankzero/parallel_config.py: tests/chart/test_train_refusals.py compares them.
*/}}
{{- define "rankzero.meshSizes" -}}
{{- $parallel := dig "parallel" dict .Values.train }}
{{- $strategy := dig "strategy" "auto" $parallel }}
{{- $tensor := dig "tensor" 0 $parallel | default 1 | int }}
{{- $pipeline := dig "pipeline" 0 $parallel | default 1 | int }}
{{- $shard := dig "shard" 0 $parallel | int }}
{{- $replicate := dig "replicate" 0 $parallel | int }}
{{- $rest := ternary 1 -1 (has -1 (list $tensor $pipeline $shard $replicate)) }}
{{- if and (eq $shard 0) (eq $strategy "hsdp") }}
{{- $inNode := div (include "rankzero.procsPerNode" . | int) (max 1 $tensor) | max 1 }}
{{- $shard = ternary $rest (int $inNode) (gt $replicate 0) }}
{{- else if eq $shard 0 }}
{{- $shard = ternary $rest 1 (eq $strategy "fsdp") }}
{{- end }}
{{- if eq $replicate 0 }}
{{- $replicate = ternary 1 $rest (or (eq $strategy "fsdp") (eq $shard -1)) }}
{{- end }}
{{- dict "pipeline" $pipeline "replicate" $replicate "shard" $shard "tensor" $tensor | toJson }}
{{- end }}
