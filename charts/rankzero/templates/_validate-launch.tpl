{{/* The script, its ranks and the time that they have to leave. */}}
{{- define "rankzero.validate.launch" -}}
{{- $errors := list }}
{{- with .Values }}

{{- $procs := include "rankzero.procsPerNode" $ | int }}
{{- $command := dig "command" list .launch }}
{{- $method := dig "method" "direct" .launch }}
{{- if and .launch.script $command }}
{{- $errors = append $errors (printf "launch.script is %s but launch.command is %s, and a rank runs one of them: remove one" .launch.script (join " " $command)) }}
{{- end }}
{{- if and $command (ne $method "direct") }}
{{- $errors = append $errors (printf "launch.method is %s but launch.command is %s, and only a script has another way to be started: remove launch.method" $method (join " " $command)) }}
{{- end }}
{{- if not (or .launch.script $command) }}
{{- $errors = append $errors "launch.script is empty: set it to the path of the training script inside the image, e.g. /opt/rankzero/examples/mnist.py" }}
{{- end }}
{{- $backend := dig "backend" "auto" .train }}
{{- $gpus := int .resources.gpus }}
{{- if and (eq $backend "nccl") (eq $gpus 0) }}
{{- $errors = append $errors "train.backend is nccl but resources.gpus is 0: ask for GPUs or set train.backend to gloo" }}
{{- end }}
{{- if and (gt $gpus 0) (gt $procs $gpus) (ne $backend "gloo") }}
{{- $errors = append $errors (printf "procsPerNode is %d but resources.gpus is %d, and two ranks cannot share a GPU: set procsPerNode to 0 or to at most %d" $procs $gpus $gpus) }}
{{- end }}

{{- $defaults := include "rankzero.launchDefaults" $ | fromJson }}
{{- $grace := int .terminationGracePeriodSeconds }}
{{- $leave := include "rankzero.leaveSeconds" $ | int }}
{{- if lt $grace $leave }}
{{- $errors = append $errors (printf "terminationGracePeriodSeconds is %d but launch.saveTimeout, launch.stopTimeout and the launcher's own %d s make %d, so pods are killed before they have saved and stopped: set terminationGracePeriodSeconds to at least %d" $grace (int $defaults.leaveMargin) $leave $leave) }}
{{- end }}

{{- end }}
{{- toJson $errors }}
{{- end }}
