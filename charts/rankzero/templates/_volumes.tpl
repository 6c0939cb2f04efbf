{{/* Volumes of the pods and where the trainer finds them. Those of the code are in _code.tpl. */}}
{{- define "rankzero.volumes" -}}
- name: config
  configMap:
    name: {{ include "rankzero.configName" . | quote }}
- name: checkpoints
  {{- include "rankzero.volumeSource" (include "rankzero.checkpointSource" . | fromJson) | nindent 2 }}
{{- with .Values.checkpoints.local }}
{{- if .enabled }}
- name: local-checkpoints
  {{- include "rankzero.nodeVolume" . | nindent 2 }}
{{- end }}
{{- end }}
- name: shm
  emptyDir:
    medium: Memory
    sizeLimit: {{ include "rankzero.shmSize" . | quote }}
- name: tmp
  {{- include "rankzero.scratch" .Values.tmp.size | nindent 2 }}
{{- with include "rankzero.cacheSource" . }}
- name: cache
  {{- . | nindent 2 }}
{{- end }}
{{- with include "rankzero.codeVolumes" . | trim }}
{{ . }}
{{- end }}
{{- range .Values.datasets }}
- name: {{ printf "dataset-%s" .name | quote }}
  {{- include "rankzero.datasetSource" . | nindent 2 }}
{{- end }}
{{- with include "rankzero.network.volumes" . | trim }}
{{ . }}
{{- end }}
{{- end }}

{{- define "rankzero.volumeMounts" -}}
- name: config
  mountPath: /etc/rankzero
  readOnly: true
- name: checkpoints
  mountPath: /checkpoints
  {{- with .Values.checkpoints.subPath }}
  subPath: {{ . | quote }}
  {{- end }}
{{- if .Values.checkpoints.local.enabled }}
- name: local-checkpoints
  mountPath: /local-checkpoints
{{- end }}
- name: shm
  mountPath: /dev/shm
- name: tmp
  mountPath: /tmp
{{- if include "rankzero.cacheSource" . }}
- name: cache
  # The image keeps all caches there, see XDG_CACHE_HOME.
  mountPath: /tmp/cache
{{- end }}
{{- with include "rankzero.codeMount" . | trim }}
{{ . }}
{{- end }}
{{- range .Values.datasets }}
- name: {{ printf "dataset-%s" .name | quote }}
  mountPath: {{ .mountPath | quote }}
  readOnly: {{ dig "readOnly" (not .objectStorage) . }}
  {{- with .subPath }}
  subPath: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with include "rankzero.network.volumeMounts" . | trim }}
{{ . }}
{{- end }}
{{- end }}

{{/* Source of a volume that exists: a claim, an NFS export or a folder of the nodes. */}}
{{- define "rankzero.volumeSource" -}}
{{- with .claim -}}
persistentVolumeClaim:
  claimName: {{ . | quote }}
{{- end }}
{{- with .nfs -}}
nfs:
  server: {{ .server | quote }}
  path: {{ .path | quote }}
{{- end }}
{{- with .hostPath -}}
hostPath:
  path: {{ .path | quote }}
  # A path that a node lacks must stop the pod, not become an empty folder.
  type: Directory
{{- end }}
{{- end }}

{{/* An empty volume on the node's disk; takes the most that it may hold, empty for as much as the disk has. */}}
{{- define "rankzero.scratch" -}}
{{- with . -}}
emptyDir:
  sizeLimit: {{ . | quote }}
{{- else -}}
emptyDir: {}
{{- end }}
{{- end }}

{{/* Where the checkpoints are, as JSON for rankzero.volumeSource. */}}
{{- define "rankzero.checkpointSource" -}}
{{- with pick .Values.checkpoints "nfs" "hostPath" }}
{{- if or .nfs .hostPath }}
{{- toJson . }}
{{- else }}
{{- dict "claim" (include "rankzero.checkpointClaim" $) | toJson }}
{{- end }}
{{- end }}
{{- end }}

{{/* The same for a person. */}}
{{- define "rankzero.checkpointPlace" -}}
{{- with include "rankzero.checkpointSource" . | fromJson }}
{{- with .claim }}claim {{ . }}{{ end }}
{{- with .nfs }}NFS export {{ .server }}:{{ .path }}{{ end }}
{{- with .hostPath }}folder {{ .path }} of the node{{ end }}
{{- end }}
{{- end }}

{{/* Whether the release makes a claim for its checkpoints: "true" or empty. */}}
{{- define "rankzero.makesClaim" -}}
{{- with .Values.checkpoints }}
{{- if not (or .existingClaim .nfs .hostPath) }}true{{ end }}
{{- end }}
{{- end }}

{{/* Access mode of that claim: most storage classes know only the one that a single node needs. */}}
{{- define "rankzero.accessMode" -}}
{{- .Values.checkpoints.accessMode | default (ternary "ReadWriteMany" "ReadWriteOnce" (gt (int .Values.nodes) 1)) }}
{{- end }}

{{/* Where caches are kept; empty for the volume of temporary files. */}}
{{- define "rankzero.cacheSource" -}}
{{- with .Values.cache }}
{{- if or .hostPath .storageClass .size }}
{{- include "rankzero.nodeVolume" . }}
{{- end }}
{{- end }}
{{- end }}

{{/* A volume of each pod's own, on its node or a claim that ends with it. Takes size, storageClass and hostPath. */}}
{{- define "rankzero.nodeVolume" -}}
{{- if .hostPath }}
{{- include "rankzero.volumeSource" (pick . "hostPath") }}
{{- else if .storageClass -}}
ephemeral:
  volumeClaimTemplate:
    spec:
      accessModes: [ReadWriteOnce]
      storageClassName: {{ .storageClass | quote }}
      resources:
        requests:
          storage: {{ .size | quote }}
{{- else }}
{{- include "rankzero.scratch" .size }}
{{- end }}
{{- end }}

{{/* Source of a dataset; one in object storage has the room for its cache. */}}
{{- define "rankzero.datasetSource" -}}
{{- with .objectStorage }}
{{- if .cachePath }}
{{- include "rankzero.volumeSource" (dict "hostPath" (dict "path" .cachePath)) }}
{{- else }}
{{- include "rankzero.scratch" .cacheSize }}
{{- end }}
{{- else }}
{{- include "rankzero.volumeSource" . }}
{{- end }}
{{- end }}
