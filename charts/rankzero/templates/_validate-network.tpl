{{/* Ports and environment. */}}
{{- define "rankzero.validate.network" -}}
{{- $errors := list }}
{{- with .Values }}

{{- $defaults := include "rankzero.launchDefaults" $ | fromJson }}
{{- $ports := include "rankzero.ports" $ | fromJson }}
{{- if eq (int $ports.rendezvousPort) (int $ports.statusPort) }}
{{- $errors = append $errors (printf "launch.rendezvousPort and launch.statusPort are both %d, and only one can listen there: set one of them to another port" (int $ports.statusPort)) }}
{{- end }}
{{- if .network.hostNetwork }}
{{- $first := int $defaults.firstStorePort }}
{{- $last := int $defaults.lastStorePort }}
{{- range $key, $port := $ports }}
{{- $owner := "" }}
{{- if ge (int $port) 32768 }}
{{- $owner = "outgoing connections" }}
{{- else if ge (int $port) 30000 }}
{{- $owner = "Services of type NodePort" }}
{{- else if and (ge (int $port) $first) (le (int $port) $last) }}
{{- $owner = "the store of any run's PyTorch" }}
{{- end }}
{{- with $owner }}
{{- $errors = append $errors (printf "launch.%s is %d but network.hostNetwork is on, and there that port can go to %s: set it below %d or leave it out" $key (int $port) . $first) }}
{{- end }}
{{- end }}
{{- end }}

{{- range $variable, $_ := .network.env }}
{{- $fix := get (dict "NCCL_SOCKET_IFNAME" "network.interface" "GLOO_SOCKET_IFNAME" "network.interface" "NCCL_DEBUG" "network.ncclDebug") $variable }}
{{- if $fix }}
{{- $errors = append $errors (printf "network.env.%s is set, which the chart sets itself: use %s" $variable $fix) }}
{{- else if regexMatch "^(RANKZERO_|TORCHELASTIC_|(MASTER_(ADDR|PORT)|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE))$)" $variable }}
{{- $errors = append $errors (printf "network.env.%s is set, which the launcher sets itself: remove it" $variable) }}
{{- end }}
{{- end }}

{{- end }}
{{- toJson $errors }}
{{- end }}
