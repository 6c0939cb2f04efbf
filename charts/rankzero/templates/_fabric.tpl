{{/*
What NCCL is told about the way between GPUs, by network.fabric. As little as possible: NCCL finds links, rails, GIDs
and protocols by itself, and a value that was right on another cluster keeps it from doing so.
https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
*/}}
{{- define "rankzero.fabricEnv" -}}
{{- with .Values.network.fabric }}
{{- if has .preset (list "ethernet" "nvlink-only") }}
# No search for RDMA devices, which takes long where drivers are there and no fabric is.
{{ include "rankzero.env.value" (list "NCCL_NET" "Socket") }}
{{- else if .required }}
# By its name NCCL takes this network or fails ("Failed to initialize any NET plugin"); unset, it goes on over TCP.
{{ include "rankzero.env.value" (list "NCCL_NET" "IB") }}
{{- end }}
{{- if eq .preset "nvlink-only" }}
# Between GPUs without NVLink through host memory: P2P over PCIe hangs behind some IOMMU and ACS settings.
{{ include "rankzero.env.value" (list "NCCL_P2P_LEVEL" "NVL") }}
{{- end }}
{{- with .devices }}
# The = takes these names whole: mlx5_1 alone would be mlx5_10 too.
{{ include "rankzero.env.value" (list "NCCL_IB_HCA" (print "=" (join "," .))) }}
{{- end }}
{{- if ge (int .trafficClass) 0 }}
{{ include "rankzero.env.value" (list "NCCL_IB_TC" (.trafficClass | int | toString)) }}
{{- end }}
{{- end }}
{{- with .Values.network }}
{{- with .ipFamily }}
{{ include "rankzero.env.value" (list "NCCL_SOCKET_FAMILY" (get (dict "IPv4" "AF_INET" "IPv6" "AF_INET6") .)) }}
{{- end }}
{{- if and (eq .ipFamily "IPv6") (eq .fabric.preset "roce") }}
# Of a RoCE port's GIDs NCCL takes one of this family; its own default is IPv4.
{{ include "rankzero.env.value" (list "NCCL_IB_ADDR_FAMILY" "AF_INET6") }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether machines are connected by RDMA, as far as the values say: "true" or "". */}}
{{- define "rankzero.rdma" -}}
{{- if has .Values.network.fabric.preset (list "infiniband" "roce") }}true{{ end }}
{{- end }}

{{/* What the launcher checks of the fabric, as JSON: the key launch.fabric of train.yaml; empty where there is nothing. */}}
{{- define "rankzero.fabricConfig" -}}
{{- if include "rankzero.rdma" . }}
{{- pick .Values.network.fabric "preset" "required" "devices" | toJson }}
{{- end }}
{{- end }}
