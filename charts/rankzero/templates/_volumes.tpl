{{- define "rankzero.volumes" -}}
- name: config
  configMap:
    name: {{ .Release.Name }}
- name: checkpoints
  persistentVolumeClaim:
    claimName: {{ include "rankzero.checkpointClaim" . }}
- name: shm
  emptyDir:
    medium: Memory
    sizeLimit: {{ include "rankzero.shmSize" . }}
- name: tmp
  emptyDir: {}
{{- range .Values.datasets }}
- name: dataset-{{ .name }}
  {{- with .claim }}
  persistentVolumeClaim:
    claimName: {{ . }}
  {{- end }}
  {{- with .nfs }}
  nfs:
    server: {{ .server }}
    path: {{ .path }}
  {{- end }}
  {{- with .hostPath }}
  hostPath:
    path: {{ .path }}
    # A path that a node lacks must stop the pod, not become an empty dataset.
    type: Directory
  {{- end }}
{{- end }}
{{- end }}

{{- define "rankzero.volumeMounts" -}}
- name: config
  mountPath: /etc/rankzero
  readOnly: true
- name: checkpoints
  mountPath: /checkpoints
- name: shm
  mountPath: /dev/shm
- name: tmp
  mountPath: /tmp
{{- range .Values.datasets }}
- name: dataset-{{ .name }}
  mountPath: {{ .mountPath }}
  readOnly: {{ dig "readOnly" true . }}
{{- end }}
{{- end }}
