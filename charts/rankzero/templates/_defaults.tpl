{{/* Written by `python -m scripts.generate` from rankzero/config.py and contract.py; do not edit. */}}
{{- define "rankzero.launchDefaults" -}}
{"saveTimeout": 30, "stopTimeout": 20, "rendezvousPort": 29500, "statusPort": 29510, "dataLoader": {"workers": 2, "prefetch": 2}, "leaveMargin": 10, "firstStorePort": 20000, "lastStorePort": 29499, "podEndsRunGoesOn": [68, 75], "podFailed": [69, 70, 128, 134, 135, 137, 139, 143, 255], "codeContainerName": "code", "exitUsage": 64}
{{- end }}
