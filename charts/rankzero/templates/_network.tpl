{{/* Labels that keep service meshes out of the pods. */}}
{{- define "rankzero.network.podLabels" -}}
{{- if .Values.network.meshOptOut }}
sidecar.istio.io/inject: "false"
istio.io/dataplane-mode: none
{{- end }}
{{- end }}

{{/* Annotations that do the same, and those that ask for further networks. */}}
{{- define "rankzero.network.podAnnotations" -}}
{{- if .Values.network.meshOptOut }}
linkerd.io/inject: disabled
{{- end }}
{{- with .Values.network.secondary }}
k8s.v1.cni.cncf.io/networks: {{ join "," . | quote }}
{{- end }}
{{- end }}

{{/* The node's profile, as the playbook left it: a node without it starts no pod. */}}
{{- define "rankzero.network.volumes" -}}
{{- if .Values.network.fromNodeProfile }}
- name: node-profile
  hostPath:
    path: /var/lib/rankzero/profile.json
    type: File
{{- end }}
{{- end }}

{{- define "rankzero.network.volumeMounts" -}}
{{- if .Values.network.fromNodeProfile }}
- name: node-profile
  mountPath: /var/lib/rankzero/profile.json
  readOnly: true
{{- end }}
{{- end }}
