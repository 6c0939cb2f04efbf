{{/*
What differs between the kinds of workload beyond their own object. Each takes the root context.
*/}}

{{/* The longest text that this kind appends to the release's name in a host name or label, which end at 63 characters. */}}
{{- define "rankzero.longestSuffix" -}}
{{- $last := sub (int .Values.nodes) 1 }}
{{- get (dict
      "StatefulSet" "-1234567890"
      "Job" (printf "-%d-12345" $last)
      "Pod" ""
      "PyTorchJob" (printf "-worker-%d" (sub $last 1 | max 0))
      "TrainJob" (printf "-node-0-%d-12345" $last)
    ) .Values.workload.kind }}
{{- end }}

{{/* Name of node rank 0 in the Service of the release. */}}
{{- define "rankzero.rank0Host" -}}
{{- $suffixes := dict "StatefulSet" "-0" "Job" "-0" "Pod" "" "PyTorchJob" "-master-0" "TrainJob" "-node-0-0" }}
{{- printf "%s%s.%s" .Release.Name (get $suffixes .Values.workload.kind) .Release.Name }}
{{- end }}

{{/* Name of the container, by which operators find it. */}}
{{- define "rankzero.containerName" -}}
{{- get (dict "PyTorchJob" "pytorch" "TrainJob" "node") .Values.workload.kind | default "trainer" }}
{{- end }}

{{/* Name of a container's port. Takes a list: root, the port's name in the other kinds. */}}
{{- define "rankzero.portName" -}}
{{- $isOperators := and (eq (index . 0).Values.workload.kind "PyTorchJob") (eq (index . 1) "rendezvous") }}
{{- ternary "pytorchjob-port" (index . 1) $isOperators }}
{{- end }}

{{/* What `kubectl logs` takes for the pod of node rank 0: its name, or its labels where its Job makes up the name. */}}
{{- define "rankzero.rank0Pod" -}}
{{- $labels := printf "-l app.kubernetes.io/instance=%s,batch.kubernetes.io/job-completion-index=0" .Release.Name }}
{{- if has .Values.workload.kind (list "Job" "TrainJob") }}{{ $labels }}{{ else }}{{ include "rankzero.rank0Host" . | splitList "." | first }}{{ end }}
{{- end }}
