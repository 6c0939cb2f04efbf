{{/* The user's affinity with the rules of scheduling.topology, avoidNodes and nodeProfile added. */}}
{{- define "rankzero.affinity" -}}
{{- $affinity := deepCopy .Values.scheduling.affinity }}
{{- with .Values.scheduling.topology }}
{{- if .key }}
{{- $term := dict "topologyKey" .key "labelSelector" (dict "matchLabels" (include "rankzero.selectorLabels" $ | fromYaml)) }}
{{- $strength := printf "%sDuringSchedulingIgnoredDuringExecution" .mode }}
{{- $rule := ternary $term (dict "weight" 100 "podAffinityTerm" $term) (eq .mode "required") }}
{{- $pods := dig "podAffinity" dict $affinity }}
{{- $_ := set $pods $strength (append (dig $strength list $pods) $rule) }}
{{- $_ := set $affinity "podAffinity" $pods }}
{{- end }}
{{- end }}
{{- with include "rankzero.nodeAffinity" . | fromYaml }}
{{- $_ := set $affinity "nodeAffinity" . }}
{{- end }}
{{- toYaml $affinity }}
{{- end }}

{{/*
The part of it about nodes. What must hold is added to each of the user's terms, because one term that fits is enough for
Kubernetes.
*/}}
{{- define "rankzero.nodeAffinity" -}}
{{- $node := deepCopy (dig "nodeAffinity" dict .Values.scheduling.affinity) }}
{{- $expressions := list }}
{{- $fields := list }}
{{- with .Values.scheduling }}
{{- /* By the name that `kubectl get nodes` and `rankzero status` print; the host name in a label can be another. */}}
{{- range .avoidNodes }}
{{- $fields = append $fields (dict "key" "metadata.name" "operator" "NotIn" "values" (list .)) }}
{{- end }}
{{- $prepared := dict "key" "rankzero.io/node-profile" "operator" "Exists" }}
{{- /* Without quotes YAML reads `off` as false. */}}
{{- if eq (toString .nodeProfile) "required" }}
{{- $expressions = append $expressions $prepared }}
{{- with .nodeProfileHash }}
{{- $expressions = append $expressions (dict "key" "rankzero.io/node-profile-hash" "operator" "In" "values" (list .)) }}
{{- end }}
{{- else if eq (toString .nodeProfile) "preferred" }}
{{- $rule := dict "weight" 100 "preference" (dict "matchExpressions" (list $prepared)) }}
{{- $preferred := append (dig "preferredDuringSchedulingIgnoredDuringExecution" list $node) $rule }}
{{- $_ := set $node "preferredDuringSchedulingIgnoredDuringExecution" $preferred }}
{{- end }}
{{- end }}
{{- if or $expressions $fields }}
{{- $terms := list }}
{{- range dig "requiredDuringSchedulingIgnoredDuringExecution" "nodeSelectorTerms" (list dict) $node }}
{{- $term := deepCopy . }}
{{- with concat (dig "matchExpressions" list .) $expressions }}
{{- $_ := set $term "matchExpressions" . }}
{{- end }}
{{- with concat (dig "matchFields" list .) $fields }}
{{- $_ := set $term "matchFields" . }}
{{- end }}
{{- $terms = append $terms $term }}
{{- end }}
{{- $_ := set $node "requiredDuringSchedulingIgnoredDuringExecution" (dict "nodeSelectorTerms" $terms) }}
{{- end }}
{{- toYaml $node }}
{{- end }}
