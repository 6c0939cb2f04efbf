{{- define "rankzero.volumes" -}}
- name: config
  configMap:
    name: {{ include "rankzero.configName" . | quote }}
- name: checkpoints
  persistentVolumeClaim:
    claimName: {{ include "rankzero.checkpointClaim" . | quote }}
- name: shm
  emptyDir:
    medium: Memory
    sizeLimit: {{ include "rankzero.shmSize" . | quote }}
- name: tmp
  emptyDir: {}
{{- range .Values.datasets }}
- name: {{ printf "dataset-%s" .name | quote }}
  {{- with .claim }}
  persistentVolumeClaim:
    claimName: {{ . | quote }}
  {{- end }}
  {{- with .nfs }}
  nfs:
    server: {{ .server | quote }}
    path: {{ .path | quote }}
  {{- end }}
  {{- with .hostPath }}
  hostPath:
    path: {{ .path | quote }}
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
- name: {{ printf "dataset-%s" .name | quote }}
  mountPath: {{ .mountPath | quote }}
  readOnly: {{ dig "readOnly" true . }}
{{- end }}
{{- end }}
