{{/*
Ports of the release as JSON, keyed as in train.yaml: the one place that container, probes, Service and launcher follow.
On the network of the nodes two releases share them, so there they follow from namespace and release name: 12000-15999
and, 4000 above, 16000-19999. That is below the ports that launchers choose (rankzero/contract.py), NodePorts
(30000-32767) and ephemeral ports (from 32768). What the values name goes first.
*/}}
{{- define "rankzero.ports" -}}
{{- $ports := pick (include "rankzero.launchDefaults" . | fromJson) "rendezvousPort" "statusPort" }}
{{- if .Values.network.hostNetwork }}
{{- /* Decimal digits of a hash are a number in every version of Helm; the 1 keeps zeros from making it octal. */}}
{{- $digits := regexReplaceAll "[a-f]" (printf "%s/%s" .Release.Namespace .Release.Name | sha256sum) "" | trunc 9 }}
{{- $rendezvous := mod (printf "1%s" $digits | int64) 4000 | add 12000 }}
{{- $ports = dict "rendezvousPort" $rendezvous "statusPort" (add $rendezvous 4000) }}
{{- end }}
{{- merge (pick .Values.launch "rendezvousPort" "statusPort") $ports | toJson }}
{{- end }}

{{/* Ports of the trainer container. */}}
{{- define "rankzero.containerPorts" -}}
{{- $ports := include "rankzero.ports" . | fromJson }}
{{- range $name := list "rendezvous" "status" }}
{{- $port := get $ports (printf "%sPort" $name) | int }}
- name: {{ include "rankzero.portName" (list $ $name) }}
  containerPort: {{ $port }}
  {{- if $.Values.network.hostNetwork }}
  # The API would fill it in, and keep it when the release leaves the network of the nodes.
  hostPort: {{ $port }}
  {{- end }}
{{- end }}
{{- end }}
