{{/* What runs the pods, and how many of them. */}}
{{- define "rankzero.validate.kinds" -}}
{{- $errors := list }}
{{- with .Values }}

{{- if lt (int .nodes) 1 }}
{{- $errors = append $errors (printf "nodes is %d, the least allowed is 1: set it to the number of machines to train on" (int .nodes)) }}
{{- end }}
{{- $kind := .workload.kind }}
{{- if and (eq $kind "Pod") (gt (int .nodes) 1) }}
{{- $errors = append $errors (printf "workload.kind is Pod but nodes is %d, and a Pod is one: set nodes to 1 or workload.kind to StatefulSet or Job" (int .nodes)) }}
{{- end }}
{{- if and .workload.activeDeadlineSeconds (eq $kind "StatefulSet") }}
{{- $errors = append $errors (printf "workload.activeDeadlineSeconds is %d but workload.kind is StatefulSet, which knows no deadline: set it to 0 or workload.kind to Job" (int .workload.activeDeadlineSeconds)) }}
{{- end }}
{{- if and .workload.ttlSecondsAfterFinished (not (has $kind (list "Job" "PyTorchJob"))) }}
{{- $errors = append $errors (printf "workload.ttlSecondsAfterFinished is %d but workload.kind is %s, which nothing removes after its end: set it to 0 or workload.kind to Job" (int .workload.ttlSecondsAfterFinished) $kind) }}
{{- end }}
{{- $hasInit := and (eq $kind "PyTorchJob") (gt (int .nodes) 1) }}
{{- if and $hasInit .resources.guaranteed }}
{{- $errors = append $errors "workload.kind is PyTorchJob but resources.guaranteed is true, and the operator adds an init container to the workers whose limits are not its requests, so that no CPU is pinned: set resources.guaranteed to false or workload.kind to StatefulSet or Job" }}
{{- end }}
{{- if and $hasInit .hami.enabled }}
{{- $errors = append $errors "workload.kind is PyTorchJob but hami.enabled is true, and HAMi loses track of the cards of its workers, to which the operator adds an init container: set workload.kind to StatefulSet or Job" }}
{{- end }}
{{- $api := get (dict "PyTorchJob" "kubeflow.org/v1/PyTorchJob" "TrainJob" "trainer.kubeflow.org/v1alpha1/TrainJob") $kind }}
{{- if and $api (not ($.Capabilities.APIVersions.Has $api)) }}
{{- $operator := ternary "training operator" "Trainer and JobSet" (eq $kind "PyTorchJob") }}
{{- $errors = append $errors (printf "workload.kind is %s but the cluster does not serve %s: install Kubeflow's %s, or set workload.kind to Job; without a cluster say --api-versions %s" $kind $api $operator $api) }}
{{- end }}

{{- end }}
{{- toJson $errors }}
{{- end }}
