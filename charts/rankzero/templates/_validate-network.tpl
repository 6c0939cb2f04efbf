{{/* Ports, fabric, further networks and environment. */}}
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

{{- $preset := .network.fabric.preset }}
{{- $rdma := include "rankzero.rdma" $ }}
{{- with .network.fabric }}
{{- if and .required (not $rdma) }}
{{- $errors = append $errors (printf "network.fabric.required is true but network.fabric.preset is %s: set the preset to infiniband or roce, whose use can be proved" .preset) }}
{{- end }}
{{- if and .required $rdma (or (eq (int $.Values.resources.gpus) 0) (eq (dig "backend" "auto" $.Values.train) "gloo")) }}
{{- $errors = append $errors "network.fabric.required is true but the ranks have no GPUs or train.backend is gloo, which knows no RDMA: set it to false" }}
{{- end }}
{{- if and .required $rdma (not .resource.name) (not $.Values.network.secondary) }}
{{- $errors = append $errors "network.fabric.required is true but pods get no RDMA device: set network.fabric.resource.name to what the device plugin offers, e.g. rdma/hca, or name networks with one in network.secondary" }}
{{- end }}
{{- if and .resource.name (eq .resource.name $.Values.resources.gpuResource) }}
{{- $errors = append $errors (printf "network.fabric.resource.name is %s, as is resources.gpuResource, so its count would be that of the GPUs: name what the RDMA device plugin offers, e.g. rdma/hca" .resource.name) }}
{{- end }}
{{- if not $rdma }}
{{- $given := dict "resource.name" .resource.name "devices" (join "," .devices) }}
{{- range $key, $value := $given }}
{{- if $value }}
{{- $errors = append $errors (printf "network.fabric.%s is %s but network.fabric.preset is %s, which knows no RDMA devices: set the preset to infiniband or roce" $key $value $preset) }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (ge (int .trafficClass) 0) (ne .preset "roce") }}
{{- $errors = append $errors (printf "network.fabric.trafficClass is %d but network.fabric.preset is %s, and only RoCE packets carry one: set the preset to roce or the class to -1" (int .trafficClass) .preset) }}
{{- end }}
{{- if and (eq .preset "nvlink-only") (gt (int $.Values.nodes) 1) }}
{{- $errors = append $errors (printf "network.fabric.preset is nvlink-only but nodes is %d: name what connects the machines (ethernet, infiniband, roce) or leave auto" (int $.Values.nodes)) }}
{{- end }}
{{- end }}

{{- if .network.fromNodeProfile }}
{{- if not .network.hostNetwork }}
{{- $errors = append $errors "network.fromNodeProfile is true but network.hostNetwork is off, and pods on their own network have other interfaces than the node: set it to false" }}
{{- end }}
{{- if ne (toString .scheduling.nodeProfile) "required" }}
{{- $errors = append $errors (printf "network.fromNodeProfile is true but scheduling.nodeProfile is %s, and on a node without a profile no pod would start: set it to required" (toString .scheduling.nodeProfile)) }}
{{- end }}
{{- range $key, $value := dict "interface" .network.interface "fabric.devices" (join "," .network.fabric.devices) }}
{{- if $value }}
{{- $errors = append $errors (printf "network.fromNodeProfile is true but network.%s is %s: leave one of them out" $key $value) }}
{{- end }}
{{- end }}
{{- end }}

{{- with .network.secondary }}
{{- if $.Values.network.hostNetwork }}
{{- $errors = append $errors (printf "network.secondary is %s but network.hostNetwork is on, and pods on the network of the nodes get no other: choose one of the two" (join ", " .)) }}
{{- end }}
{{- if hasKey $.Values.podAnnotations "k8s.v1.cni.cncf.io/networks" }}
{{- $errors = append $errors (printf "network.secondary is %s and podAnnotations[k8s.v1.cni.cncf.io/networks] is set too: name all networks in one of them" (join ", " .)) }}
{{- end }}
{{- end }}

{{- $threads := dig "NCCL_SOCKET_NTHREADS" "1" .network.env | int }}
{{- $sockets := dig "NCCL_NSOCKS_PERTHREAD" "1" .network.env | int }}
{{- if gt (mul $threads $sockets) 64 }}
{{- $errors = append $errors (printf "network.env.NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD is %d, and NCCL opens at most 64 sockets: lower one of them" (mul $threads $sockets)) }}
{{- end }}
{{- $rendered := dict }}
{{- range include "rankzero.fabricEnv" $ | fromYamlArray }}
{{- $_ := set $rendered .name .value }}
{{- end }}
{{- range $variable, $value := .network.env }}
{{- $isAnothers := and (eq $variable "NCCL_NET") (ne $preset "auto") }}
{{- if or $isAnothers (and (eq $variable "NCCL_IB_DISABLE") (ne $value "0") $rdma) }}
{{- $errors = append $errors (printf "network.env.%s is %s but network.fabric.preset is %s: remove it, or set the preset to auto" $variable $value $preset) }}
{{- end }}
{{- $fix := get (dict "NCCL_SOCKET_IFNAME" "network.interface" "GLOO_SOCKET_IFNAME" "network.interface" "NCCL_DEBUG" "network.ncclDebug" "NCCL_IB_HCA" "network.fabric.devices" "NCCL_IB_TC" "network.fabric.trafficClass" "NCCL_SOCKET_FAMILY" "network.ipFamily") $variable }}
{{- if $fix }}
{{- $errors = append $errors (printf "network.env.%s is set, which the chart sets itself: use %s" $variable $fix) }}
{{- else if and (hasKey $rendered $variable) (not $isAnothers) }}
{{- $errors = append $errors (printf "network.env.%s is set, which the chart sets to %s as network.fabric.preset and network.ipFamily say: remove it, or change those" $variable (get $rendered $variable)) }}
{{- else if eq $variable "CUDA_VISIBLE_DEVICES" }}
{{- $errors = append $errors (printf "network.env.%s is set to %s, and every rank of a pod would see these cards and no others: remove it, and set resources.gpus" $variable $value) }}
{{- else if eq $variable "NVIDIA_VISIBLE_DEVICES" }}
{{- $errors = append $errors (printf "network.env.%s is set, by which a pod gets GPUs that it has not asked for: remove it, and set resources.gpus" $variable) }}
{{- else if regexMatch "^(RANKZERO_|TORCHELASTIC_|(MASTER_(ADDR|PORT)|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE))$)" $variable }}
{{- $errors = append $errors (printf "network.env.%s is set, which the launcher sets itself: remove it" $variable) }}
{{- end }}
{{- end }}

{{- end }}
{{- toJson $errors }}
{{- end }}
