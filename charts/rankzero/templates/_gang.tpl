{{/*
All pods of the release or none (scheduling.gang). Each scheduler has a PodGroup of its own, in podgroup*.yaml, all named
after the release; what ties the pods to it is here.
*/}}
{{- define "rankzero.gang.apis" -}}
{"native": "scheduling.k8s.io/v1beta1/PodGroup", "volcano": "scheduling.volcano.sh/v1beta1/PodGroup", "coscheduling": "scheduling.x-k8s.io/v1alpha1/PodGroup"}
{{- end }}

{{- define "rankzero.gang.podLabels" -}}
{{- if eq .Values.scheduling.gang "coscheduling" }}
scheduling.x-k8s.io/pod-group: {{ .Release.Name | quote }}
{{- end }}
{{- end }}

{{/* Volcano reads this annotation and no other; a pod without it gets a group of its own, of one. */}}
{{- define "rankzero.gang.podAnnotations" -}}
{{- if eq .Values.scheduling.gang "volcano" }}
scheduling.k8s.io/group-name: {{ .Release.Name | quote }}
{{- end }}
{{- end }}

{{/* What all pods ask for together, as JSON: with it a gang that does not fit says which resource is short. */}}
{{- define "rankzero.gang.minResources" -}}
{{- $sum := dict }}
{{- range $resource, $quantity := (include "rankzero.resources" . | fromYaml).requests }}
{{- $number := mulf (regexFind "^[0-9.]+" (toString $quantity) | float64) (float64 $.Values.nodes) }}
{{- $whole := int64 $number }}
{{- $unit := regexFind "[A-Za-z]*$" (toString $quantity) }}
{{- $_ := set $sum $resource (printf "%v%s" (ternary $whole $number (eq (float64 $whole) $number)) $unit) }}
{{- end }}
{{- toJson $sum }}
{{- end }}

{{/* Where to read why the release waits; empty where it waits for nobody. */}}
{{- define "rankzero.gang.note" -}}
{{- with .Values.scheduling.kueue.queue }}
kubectl -n {{ $.Release.Namespace }} get workloads.kueue.x-k8s.io   (whether queue {{ . }} has admitted it)
{{- end }}
{{- /* In full: three schedulers have a podgroup. */}}
{{- with get (include "rankzero.gang.apis" . | fromJson) .Values.scheduling.gang }}
kubectl -n {{ $.Release.Namespace }} describe podgroups.{{ . | dir | dir }} {{ $.Release.Name }}
{{- end }}
{{- end }}
