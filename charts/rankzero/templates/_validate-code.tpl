{{/* Where the script comes from. */}}
{{- define "rankzero.validate.code" -}}
{{- $errors := list }}
{{- $sources := include "rankzero.codeSources" . | fromJsonArray }}
{{- $script := .Values.launch.script | default "" }}
{{- with .Values.code }}

{{- if gt (len $sources) 1 }}
{{- $errors = append $errors (printf "code has %s as its source: keep one of files, configMap, claim, nfs, hostPath and git" (join " and " $sources)) }}
{{- end }}
{{- if and .subPath (not $sources) }}
{{- $errors = append $errors (printf "code.subPath is %s but code has no source: set one, or leave it out for a script in the image" .subPath) }}
{{- end }}

{{- with .files }}
{{- $folder := print $.Values.code.mountPath "/" }}
{{- $name := trimPrefix $folder $script }}
{{- if and (hasPrefix $folder $script) (not (hasKey . $name)) }}
{{- $errors = append $errors (printf "launch.script is %s but code.files has %s: add the file, e.g. `--set-file code.files.%s=PATH`, or name one of these" $script (keys . | sortAlpha | join ", ") (replace "." "\\." $name)) }}
{{- end }}
{{- range $name, $content := . }}
{{- /* Helm replaces other bytes, or leaves out the whole mapping, without a word. */}}
{{- if or (not (toYaml $content)) (ne $content (toJson (dict "content" $content) | fromJson).content) }}
{{- $errors = append $errors (printf "code.files[%s] is no plain text in UTF-8: save it as such, or bring it by code.git, a claim or the image" $name) }}
{{- end }}
{{- end }}
{{- $size := 0 }}
{{- range . }}{{ $size = add $size (len .) }}{{ end }}
{{- if gt (int64 $size) 1000000 }}
{{- $errors = append $errors (printf "code.files holds %d bytes, and a ConfigMap at most 1000000 of them: use code.git, a claim or the image" $size) }}
{{- end }}
{{- end }}
{{- if and (not .readOnly) (or .files .configMap) }}
{{- $errors = append $errors "code.readOnly is false but a ConfigMap cannot be written to: remove it and write below RANKZERO_STATE_DIR or /tmp" }}
{{- end }}

{{- with .git }}
{{- if and .repository (eq $.Values.workload.kind "PyTorchJob") }}
{{- $errors = append $errors "code.git is set but workload.kind is PyTorchJob, whose operator makes a pod anew for ever when its init container fails: put the code into the image, a ConfigMap or a volume, or set workload.kind to StatefulSet or Job" }}
{{- end }}
{{- if and .repository $.Values.hami.enabled }}
{{- $errors = append $errors "code.git is set but hami.enabled is true, and HAMi loses track of the cards of pods that have an init container: put the code into the image, a ConfigMap or a volume" }}
{{- end }}
{{- if and .repository (not .revision) }}
{{- $errors = append $errors (printf "code.git.revision is empty: set it to a full commit hash or a tag of %s" .repository) }}
{{- end }}
{{- if and (not .repository) (or .revision .secret) }}
{{- $errors = append $errors "code.git.repository is empty: set it to the URL of the repository, or remove code.git" }}
{{- end }}
{{- if regexMatch "^(HEAD|main|master|develop|trunk|refs/heads/.*|origin/.*)$" .revision }}
{{- $errors = append $errors (printf "code.git.revision is %s, a branch, which names other code tomorrow: set it to a full commit hash (`git rev-parse %s`) or a tag" .revision .revision) }}
{{- else if and (regexMatch "^[0-9a-f]{7,39}$" .revision) (regexMatch "[0-9]" .revision) }}
{{- $errors = append $errors (printf "code.git.revision is %s, a part of a commit hash, which servers do not look up: set it to the full one (`git rev-parse %s`)" .revision .revision) }}
{{- end }}
{{- /* A user alone is none with ssh; with https it can be a token. */}}
{{- if and (regexMatch "^[A-Za-z+]+://[^/]*@" .repository) (not (regexMatch "^ssh://[^/:@]+@[^/@]+(/|$)" .repository)) }}
{{- $errors = append $errors "code.git.repository holds a user name, password or token, which everybody who may read the release would see: put it into a Secret and name that in code.git.secret" }}
{{- else if and (regexMatch "^(http|git)://" .repository) .revision (not (regexMatch "^([0-9a-f]{40}|[0-9a-f]{64})$" .revision)) }}
{{- $errors = append $errors (printf "code.git.revision is %s but code.git.repository is %s, and on that way anybody could hand out other code by that name: use an https or ssh URL, or a full commit hash" .revision .repository) }}
{{- else if and .secret (regexMatch "^(http|git|file)://" .repository) }}
{{- $errors = append $errors (printf "code.git.secret is %s but code.git.repository is %s, and it would cross the network in clear or not be asked for: use an https or ssh URL, or remove the secret" .secret .repository) }}
{{- else if and (not .secret) (regexMatch "^(ssh://|[^/:]+@[^/:]+:)" .repository) }}
{{- $errors = append $errors (printf "code.git.secret is empty but code.git.repository is %s: name a Secret with ssh-privatekey and known_hosts" .repository) }}
{{- end }}
{{- end }}

{{- end }}
{{- toJson $errors }}
{{- end }}
