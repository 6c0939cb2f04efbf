"""``_defaults.tpl``: what the chart's rules need to know of the launcher, defaults of its settings first."""

from __future__ import annotations

import dataclasses
import json

from rankzero import contract
from rankzero.config import DataLoaderConfig, LaunchConfig, camel

NEEDED = ("save_timeout", "stop_timeout", "rendezvous_port", "status_port")


def render() -> str:
    """The text of ``_defaults.tpl``."""
    by_name = {f.name: f.default for f in dataclasses.fields(LaunchConfig)}
    loader = DataLoaderConfig()
    facts = {
        **{camel(name): by_name[name] for name in NEEDED},
        "dataLoader": {"workers": loader.workers, "prefetch": loader.prefetch},
        "leaveMargin": contract.LEAVE_MARGIN,
        "firstStorePort": contract.FIRST_STORE_PORT,
        "lastStorePort": contract.LAST_STORE_PORT,
        "podEndsRunGoesOn": list(contract.POD_ENDS_RUN_GOES_ON),
        "podFailed": list(contract.POD_FAILED),
        "codeContainerName": contract.CODE_CONTAINER_NAME,
        "exitUsage": contract.EXIT_USAGE,
    }
    return (
        "{{/* Written by `python -m scripts.generate` from rankzero/config.py and contract.py; do not edit. */}}\n"
        f'{{{{- define "rankzero.launchDefaults" -}}}}\n{json.dumps(facts)}\n{{{{- end }}}}\n'
    )
