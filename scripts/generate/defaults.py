"""``_defaults.tpl``: the launcher's defaults for rules of the chart that need one the values leave out."""

from __future__ import annotations

import dataclasses
import json

from rankzero import contract
from rankzero.config import LaunchConfig, camel

NEEDED = ("save_timeout", "stop_timeout", "rendezvous_port", "status_port")


def render() -> str:
    """The text of ``_defaults.tpl``."""
    by_name = {f.name: f.default for f in dataclasses.fields(LaunchConfig)}
    defaults = json.dumps({**{camel(name): by_name[name] for name in NEEDED}, "leaveMargin": contract.LEAVE_MARGIN})
    return (
        "{{/* Written by `python -m scripts.generate` from rankzero/config.py; do not edit. */}}\n"
        f'{{{{- define "rankzero.launchDefaults" -}}}}\n{defaults}\n{{{{- end }}}}\n'
    )
