{{/* Secrets and the NetworkPolicy. */}}
{{- define "rankzero.validate.security" -}}
{{- $errors := list }}
{{- with .Values }}

{{- range $variable, $value := .network.env }}
{{- $named := regexMatch "(^|_)(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS|(API|ACCESS|SECRET_ACCESS|PRIVATE|SIGNING)_?KEY)$" $variable }}
{{- $isOfText := regexMatch "(^|_)(BOS|EOS|PAD|UNK|SEP|CLS|MASK)_TOKEN$" $variable }}
{{- $shaped := regexMatch "^(hf_|ghp_|gho_|github_pat_|glpat-|xox[abp]-|AKIA|ASIA|eyJ|-----BEGIN |[A-Za-z][-+.A-Za-z0-9]*://[^/@]*:[^/@$][^/@]*@)" $value }}
{{- if and $value (or (and $named (not $isOfText)) $shaped) }}
{{- $errors = append $errors (printf "network.env.%s looks like a secret, which everybody would read in the release: put it into a Secret and refer to that, secretEnv.%s: {secret: NAME, key: KEY}" $variable $variable) }}
{{- end }}
{{- end }}
{{- range $key := list "args" "command" }}
{{- range dig $key list $.Values.launch }}
{{- if regexMatch "(^|=)((hf|ghp|gho)_|github_pat_|glpat-|xox[abp]-|AKIA|ASIA)[-_0-9A-Za-z]{16,}$" (toString .) }}
{{- $errors = append $errors (printf "launch.%s holds what looks like a secret (%s...), which everybody would read in the release: put it into a Secret, refer to that in secretEnv, and let the program read the variable" $key (regexFind "(hf|ghp|gho)_|github_pat_|glpat-|xox[abp]-|AKIA|ASIA" (toString .))) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $variable, $_ := .secretEnv }}
{{- if hasKey $.Values.network.env $variable }}
{{- $errors = append $errors (printf "secretEnv.%s is set, and network.env.%s too: remove one of them" $variable $variable) }}
{{- end }}
{{- if regexMatch "^(RANKZERO_|TORCHELASTIC_|NCCL_|GLOO_|(CUDA_DISABLE_CONTROL|(NVIDIA|CUDA)_VISIBLE_DEVICES|MASTER_(ADDR|PORT)|(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE))$)" $variable }}
{{- $errors = append $errors (printf "secretEnv.%s is set, which chart, launcher and device plugin set themselves: remove it" $variable) }}
{{- end }}
{{- end }}

{{- if and .rbac.create (not .serviceAccount.create) (not .serviceAccount.name) }}
{{- $errors = append $errors "serviceAccount.create is false and serviceAccount.name is empty but rbac.create is true, which would give the rights to every pod of the namespace that names no account: set the name of an account of your own, or rbac.create to false" }}
{{- end }}

{{- with .networkPolicy }}
{{- $asked := or .ingress .egress.restricted .egress.rules }}
{{- if and $asked (not .enabled) }}
{{- $errors = append $errors "networkPolicy has rules but networkPolicy.enabled is false: set it to true or remove them" }}
{{- end }}
{{- if and $asked $.Values.network.hostNetwork }}
{{- $errors = append $errors "networkPolicy has rules but network.hostNetwork is on, where no NetworkPolicy counts: remove them and close the network of the nodes" }}
{{- end }}
{{- if and .egress.rules (not .egress.restricted) }}
{{- $errors = append $errors "networkPolicy.egress.rules are set but networkPolicy.egress.restricted is false, so all egress is allowed: set it to true or remove them" }}
{{- end }}
{{- if and .egress.restricted (not .egress.rules) (eq (include "rankzero.mountsToken" $) "true") }}
{{- $errors = append $errors "networkPolicy.egress.restricted is true without rules, so the launcher cannot reach the API server to free the GPUs in the end: add its address to networkPolicy.egress.rules, e.g. {to: [{ipBlock: {cidr: 192.0.2.1/32}}], ports: [{port: 6443}]}, or set rbac.create to false" }}
{{- end }}
{{- if and .egress.restricted (not .egress.rules) $.Values.code.git.repository }}
{{- $errors = append $errors (printf "networkPolicy.egress.restricted is true without rules but code.git.repository is %s, which the init container could not reach: add its address to networkPolicy.egress.rules" $.Values.code.git.repository) }}
{{- end }}
{{- if and .egress.restricted (not .egress.rules) (or $.Values.objectStorage.url $.Values.objectStorage.endpoint (include "rankzero.remoteDatasets" $ | fromJson)) }}
{{- $errors = append $errors "networkPolicy.egress.restricted is true without rules but objectStorage or a dataset in one is set, which the script could not reach: add its address to networkPolicy.egress.rules" }}
{{- end }}
{{- end }}

{{- end }}
{{- toJson $errors }}
{{- end }}
