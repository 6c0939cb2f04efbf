{{/* All pods or none, and the queues before it. */}}
{{- define "rankzero.validate.gang" -}}
{{- $errors := list }}
{{- with .Values.scheduling }}

{{- $api := get (include "rankzero.gang.apis" . | fromJson) .gang }}
{{- if and $api (not ($.Capabilities.APIVersions.Has $api)) }}
{{- $without := get (dict
      "native" "would drop the pods' group without a word: switch its gate GenericWorkload on (Kubernetes 1.37)"
      "volcano" "has no Volcano: install it"
      "coscheduling" "has no scheduler-plugins: install them") .gang }}
{{- $errors = append $errors (printf "scheduling.gang is %s but the cluster does not serve %s and %s, or set scheduling.gang to none; without a cluster give helm --api-versions %s" .gang $api $without $api) }}
{{- end }}
{{- $kind := $.Values.workload.kind }}
{{- if and (ne .gang "none") (not (has $kind (list "StatefulSet" "Job"))) }}
{{- $why := ternary "is a single pod" "keeps the field of its pods' group from them" (eq $kind "Pod") }}
{{- if and (ne $kind "Pod") (ne .gang "native") }}
{{- $why = "makes groups of its own, as its operator is set up" }}
{{- end }}
{{- $errors = append $errors (printf "scheduling.gang is %s but workload.kind is %s, which %s: set scheduling.gang to none or workload.kind to StatefulSet or Job" .gang $kind $why) }}
{{- end }}
{{- if and .kueue.queue (not (or ($.Capabilities.APIVersions.Has "kueue.x-k8s.io/v1beta2/LocalQueue") ($.Capabilities.APIVersions.Has "kueue.x-k8s.io/v1beta1/LocalQueue"))) }}
{{- $errors = append $errors (printf "scheduling.kueue.queue is %s but the cluster serves no LocalQueue, and the pods would start without waiting for it: install Kueue or remove the queue; without a cluster give helm --api-versions kueue.x-k8s.io/v1beta2/LocalQueue" .kueue.queue) }}
{{- end }}
{{- if and .kueue.priorityClass (not .kueue.queue) }}
{{- $errors = append $errors (printf "scheduling.kueue.priorityClass is %s but scheduling.kueue.queue is empty, and it orders nothing else: set the queue or remove it" .kueue.priorityClass) }}
{{- end }}
{{- if and .volcano.queue (ne .gang "volcano") }}
{{- $errors = append $errors (printf "scheduling.volcano.queue is %s but scheduling.gang is %s: set scheduling.gang to volcano or remove the queue" .volcano.queue .gang) }}
{{- end }}
{{- /* For coscheduling it may be the right one: scheduler-plugins can take the place of the cluster's scheduler. */}}
{{- if and (eq .gang "volcano") (eq .schedulerName "default-scheduler") }}
{{- $errors = append $errors (printf "scheduling.schedulerName is default-scheduler but scheduling.gang is %s, of whose groups it knows nothing: leave the name empty" .gang) }}
{{- end }}

{{- $keys := dict
      "kueue.x-k8s.io/queue-name" "scheduling.kueue.queue"
      "kueue.x-k8s.io/priority-class" "scheduling.kueue.priorityClass"
      "scheduling.x-k8s.io/pod-group" "scheduling.gang: coscheduling"
      "scheduling.k8s.io/group-name" "scheduling.gang: volcano" }}
{{- range $map := list "podLabels" "podAnnotations" }}
{{- range $name, $_ := get $.Values $map }}
{{- with get $keys $name }}
{{- $errors = append $errors (printf "%s[%s] is set, which on the pods alone makes no gang and waits in no queue: use %s" $map $name .) }}
{{- end }}
{{- end }}
{{- end }}

{{- end }}
{{- toJson $errors }}
{{- end }}
