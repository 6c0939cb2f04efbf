{{/* The script, its ranks and the time that they have to leave. */}}
{{- define "rankzero.validate.launch" -}}
{{- $errors := list }}
{{- with .Values }}

{{- $procs := include "rankzero.procsPerNode" $ | int }}
{{- if not .launch.script }}
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
