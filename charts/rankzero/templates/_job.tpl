{{/*
The spec of a Job with one pod a node, for the kinds Job and TrainJob. The launcher retries in place what it can; its exit
code says what else to do with the pod (rankzero/contract.py).
*/}}
{{- define "rankzero.jobSpec" -}}
{{- $codes := include "rankzero.launchDefaults" . | fromJson }}
{{- $pod := dict
      "root" .
      "nodeRankField" "metadata.annotations['batch.kubernetes.io/job-completion-index']"
      "restartPolicy" "Never" }}
completionMode: Indexed
completions: {{ .Values.nodes | int }}
parallelism: {{ .Values.nodes | int }}
# Of the whole group, since no node can train without the others: a limit per index would let them wait for one.
backoffLimit: {{ .Values.workload.backoffLimit | int64 }}
# A pod that is still ending holds its rank, its GPUs and its place in the group.
podReplacementPolicy: Failed
podFailurePolicy:
  rules:
    {{- if .Values.code.git.repository }}
    # A revision, or a key of the Secret, that is not there: another pod would not find it either.
    - action: FailJob
      onExitCodes:
        containerName: {{ $codes.codeContainerName }}
        operator: In
        values: [{{ $codes.exitUsage }}]
    {{- end }}
    # Evicted, preempted, or lost with its node.
    - action: Ignore
      onPodConditions:
        - type: DisruptionTarget
          status: "True"
    # Stopped from outside, or still without rank 0.
    - action: Ignore
      onExitCodes:
        containerName: {{ include "rankzero.containerName" . }}
        operator: In
        values: {{ toJson $codes.podEndsRunGoesOn }}
    # Any other code but those of a pod that failed by itself: the launchers have given up, a new pod could not help.
    - action: FailJob
      onExitCodes:
        containerName: {{ include "rankzero.containerName" . }}
        operator: NotIn
        values: {{ toJson $codes.podFailed }}
{{- with .Values.workload.activeDeadlineSeconds }}
activeDeadlineSeconds: {{ . | int64 }}
{{- end }}
template:
  {{- include "rankzero.podTemplate" $pod | nindent 2 }}
{{- end }}
