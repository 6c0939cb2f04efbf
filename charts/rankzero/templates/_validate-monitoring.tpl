{{/* Objects for Prometheus and Grafana. */}}
{{- define "rankzero.validate.monitoring" -}}
{{- $errors := list }}
{{- with .Values.monitoring }}

{{- if and .podMonitor.enabled (not ($.Capabilities.APIVersions.Has "monitoring.coreos.com/v1/PodMonitor")) }}
{{- $errors = append $errors "monitoring.podMonitor.enabled is true but this cluster does not serve monitoring.coreos.com/v1 PodMonitor: install the Prometheus operator, or set it to false and have Prometheus find the pods' port `status` by itself" }}
{{- end }}
{{- with $.Values.networkPolicy }}
{{- if and $.Values.monitoring.podMonitor.enabled .enabled (not .statusFromAnywhere) (not .ingress) }}
{{- $errors = append $errors "monitoring.podMonitor.enabled is true but networkPolicy.statusFromAnywhere is false and networkPolicy.ingress is empty, so Prometheus reaches no pod: add a rule for it to networkPolicy.ingress" }}
{{- end }}
{{- end }}
{{- if and .dashboard.enabled (not .dashboard.labels) }}
{{- $errors = append $errors "monitoring.dashboard.labels is empty but monitoring.dashboard.enabled is true, and Grafana's sidecar finds dashboards by a label: set the one that yours looks for, e.g. grafana_dashboard" }}
{{- end }}

{{- end }}
{{- toJson $errors }}
{{- end }}
