"""Filters of the role container_runtime that compare what the running CRI says with what was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def cri_findings(cri: Mapping[str, Any], wanted: Mapping[str, Any], plan: Mapping[str, Any]) -> list[str]:
    """A sentence for each thing in which the running CRI is not what the files should make of it."""
    if not cri["answers"]:
        return [f"the CRI does not answer ({cri['problem'] or 'no reason given'})"]
    handler = wanted["handler"]
    findings = [] if cri["ready"] else [f"the CRI is not ready ({cri['problem']})"]
    if handler and handler not in cri["runtimes"]:
        return [*findings, f"the running CRI has no runtime {handler}, only {', '.join(sorted(cri['runtimes']))}"]
    if handler:
        has, should = cri["runtimes"][handler], plan["runtimes"].get(handler, {}).get("options", {})
        findings += [
            f"{name} of the running CRI's runtime {handler} is {has.get(name)!r}, not {value!r}"
            for name, value in should.items()
            if has.get(name) != value
        ]
    # What containerd's own files define; those of K3s and RKE2 are not planned as a whole.
    gone = sorted(set(cri["runtimes"]) - set(plan["runtimes"])) if "runc" in plan["runtimes"] else []
    if gone:
        findings.append(f"the running CRI still has the runtime {', '.join(gone)}, which no file defines any more")
    if plan["default"] and cri["default"] and plan["default"] != cri["default"]:
        findings.append(f"the running CRI's default runtime is {cri['default']}, not {plan['default']}")
    if wanted["cdi"] and cri["cdi"] is False:
        findings.append("the running CRI has CDI switched off")
    return findings


def file_record(
    record: Mapping[str, Mapping[str, Any]], plan: Mapping[str, Any], texts: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """By path, the text ``before`` (None: no file) and the one that the role has ``set``, once ``plan`` is carried out.

    A file that is no longer what the role set belongs to somebody else, and counts as the text before. The record is
    written first, and a new text may not last; ``earlier`` is the one that the role had set until then.
    """
    kept = {path: dict(entry) for path, entry in record.items() if path not in plan["remove"]}
    for path, new in plan["write"].items():
        text, entry = texts.get(path), record.get(path, {})
        ours = text is not None and text in (entry.get("set"), entry.get("earlier"))
        kept[path] = {"before": entry["before"] if ours else text, "set": new} | ({"earlier": text} if ours else {})
    return kept


def files_before(
    texts: Mapping[str, str], plan: Mapping[str, Any], unread: Mapping[str, Mapping[str, Any]]
) -> dict[str, str | None]:
    """By path, what brings back the files with which the runtime was started, None for one that was not there.

    ``unread`` is the record of files that the runtime has not read since they were written.
    """
    now = {path: texts.get(path) for path in (*plan["write"], *plan["remove"])}
    return now | {path: entry["before"] for path, entry in unread.items()}


def drop_ins_before(drop_ins: Mapping[str, str], wrong: Sequence[str], waiting: Sequence[str]) -> dict[str, str | None]:
    """As :func:`files_before` for unit drop-ins: those that are ``wrong`` and will be written, and those of services
    that are ``waiting`` and so have not been started with theirs."""
    return {path: drop_ins.get(path) if path in wrong else None for path in (*wrong, *waiting)}


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {
            "container_runtime_cri_findings": cri_findings,
            "container_runtime_files_before": files_before,
            "container_runtime_drop_ins_before": drop_ins_before,
            "container_runtime_file_record": file_record,
        }
