{{/*
What the library and scripts need to reach object storage: settings that clients of S3 read by these names, and where
the data is. Takes the chart's root context.
*/}}
{{- define "rankzero.objectStorageEnv" -}}
{{- with .Values.objectStorage }}
{{- range $name, $value := dict
      "RANKZERO_OBJECT_STORAGE_URL" .url
      "AWS_ENDPOINT_URL" .endpoint
      "AWS_REGION" .region
      "AWS_DEFAULT_REGION" .region }}
{{- with $value }}
- name: {{ $name }}
  value: {{ . | quote }}
{{- end }}
{{- end }}
{{- $secret := .secret }}
{{- range ternary (list "AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY" "AWS_SESSION_TOKEN") list (ne $secret "") }}
- name: {{ . }}
  valueFrom:
    secretKeyRef:
      name: {{ $secret | quote }}
      key: {{ . }}
      {{- if eq . "AWS_SESSION_TOKEN" }}
      optional: true
      {{- end }}
{{- end }}
{{- end }}
{{- with include "rankzero.remoteDatasets" . | fromJson }}
- name: RANKZERO_DATASETS
  value: {{ toJson . | quote }}
{{- end }}
{{- end }}

{{/* Datasets in object storage by name, as JSON: where each is, where its cache, and its bytes. */}}
{{- define "rankzero.remoteDatasets" -}}
{{- $remote := dict }}
{{- range .Values.datasets }}
{{- if .objectStorage }}
{{- $entry := dict "url" .objectStorage.url "cache" .mountPath }}
{{- with .objectStorage.cacheSize }}
{{- $_ := set $entry "size" (include "rankzero.bytes" . | int64) }}
{{- end }}
{{- $_ := set $remote .name $entry }}
{{- end }}
{{- end }}
{{- toJson $remote }}
{{- end }}
