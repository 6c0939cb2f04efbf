"""Tables of measurements in the guides, from the files in ``bench/results``; what is around them is written by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import result_file
from bench.data import summary as readers
from bench.recovery import summary
from rankzero.errors import ConfigError
from scripts.drill import catalogue
from scripts.drill.ground import STRATEGIES
from scripts.drill.plan import Drill
from scripts.drill.results import name_of
from scripts.generate import files

BEGIN, END = (
    "<!-- Written by `python -m scripts.generate` from {source}. -->",
    "<!-- End of {name}. -->",
)

TARGETS = {
    "site_serially_s_a_node": "`site.yml`, one node after the other: seconds a node",
    "site_all_s": "`site.yml`, all at once: seconds",
    "site_changed": "tasks of `site.yml` that changed anything",
    "check_all_s": "`check.yml`, all at once: seconds",
}
"""What the targets of bench/results/nodes.json are in words."""


def recovery() -> str:
    """The text of ``docs/recovery.md``."""
    found = result_file.read("recovery")
    lines = "Not measured yet: `python -m bench.recovery` does." if found is None else _recovery(found)
    return replaced(files.RECOVERY, "recovery", lines)


def front_page() -> str:
    """The text of ``README.md``: the table of ``docs/recovery.md`` without what it says of its making."""
    found = result_file.read("recovery")
    return replaced(files.FRONT_PAGE, "recovery", "Not measured yet." if found is None else table(summary.table(found)))


def drills() -> str:
    """The text of ``docs/drills.md``: every drill, and its result where it has one; then those with sharded state."""
    found = result_file.read("drills") or {"drills": {}}
    whole, *others = STRATEGIES
    results = {name: one for name, one in found["drills"].items() if one.get("strategy", whole) == whole}
    rows = [["drill", "what is done", "what must happen", "within", "target", "took", ""]]
    rows += [_drill(drill, results.get(drill.name)) for drill in catalogue.DRILLS]
    said = "\n".join(
        f"- `{drill.name}`: {'; '.join(map(_quoted, dict.fromkeys(results[drill.name]['cause'])))}"
        for drill in catalogue.DRILLS
        if drill.name in results and drill.causes
    )
    parts = (
        [table(rows), *_drilled_on(results), "What the records said of each attempt:", said] if said else [table(rows)]
    )
    for strategy in others:
        parts += _drills_again(
            strategy, {n: one for n, one in found["drills"].items() if one.get("strategy") == strategy}
        )
    return replaced(files.DRILLS, "drills", "\n\n".join(parts))


def nodes() -> str:
    """The text of ``docs/nodes.md``: how long a run takes that changes nothing, and what that means for 200 nodes."""
    found = result_file.read("nodes")
    return replaced(
        files.NODES, "nodes", "Not measured yet: `python -m bench.nodes` does." if found is None else _nodes(found)
    )


def scale() -> str:
    """The text of ``docs/scale.md``: a release of many pods beside one of few."""
    found = result_file.read("scale")
    return replaced(
        files.SCALE, "scale", "Not measured yet: `python -m bench.scale` does." if found is None else _scale(found)
    )


def data() -> str:
    """The text of ``docs/data.md``: readers of packed samples side by side."""
    found = result_file.read("data")
    return replaced(
        files.DATA, "data", "Not measured yet: `python -m bench.data` does." if found is None else _data(found)
    )


def replaced(path: Path, name: str, text: str, source: str = "") -> str:
    """The guide ``path`` with ``text`` between the marks of ``name``, by default a measurement's.

    Raises :class:`ConfigError` where the marks are not there.
    """
    begin, end = BEGIN.format(source=source or f"bench/results/{name}.json"), END.format(name=name)
    guide, count = re.subn(
        f"({re.escape(begin)}\n).*?({re.escape(end)})",
        lambda found: f"{found[1]}\n{text}\n\n{found[2]}",
        path.read_text(encoding="utf-8"),
        flags=re.DOTALL,
    )
    if count != 1:
        raise ConfigError(f"{path} has {count} places for {name}", hint=f"write one: {begin} and {end}, a line each")
    return guide


def table(rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown; the first row is its head."""
    heading, *body = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in [heading, ["---"] * len(heading), *body])


def _recovery(found: dict[str, Any]) -> str:
    machine, settings = found["machine"], found["settings"]
    targets = [
        ["target", "limit", "measured", ""],
        *(
            [name, f"{target['target']:g}", _seconds(target["value"]), "met" if target["met"] else "missed"]
            for name, target in found["targets"].items()
        ),
    ]
    where = (
        f"{machine['measured']} UTC, {machine['cores']} cores, {machine['memory_gib']:g} GiB, "
        f"Linux {machine['kernel']}, Kubernetes {machine['kubernetes']}, torch {machine['torch']}, "
        f"image `{found['image']}`. "
        f"Medians of {settings['repetitions']} (smallest to largest), then the multiple of ours; "
        f"`>{settings['give_up_s']:g}`: no step within that time. Each of the three disturbances has an install of its "
        "own, so there are three times as many of those."
    )
    choices = "\n".join(f"- {form['title']}: {form['choices']}" for form in found["forms"].values())
    return "\n\n".join([table(summary.table(found)), where, table(targets), choices])


def _nodes(found: dict[str, Any]) -> str:
    machine, projection, serially = found["machine"], found["projection"], found["serially"]
    rows = [["run", "nodes", "at once", "seconds", "of it Ansible's processor time", "changed"]]
    rows += [
        [
            f"`{run['playbook']}.yml`",
            str(run["nodes"]),
            "1" if run is serially else str(run["forks"]),
            _seconds(run["seconds"]),
            _seconds(run["controller_cpu_seconds"]),
            str(run["changed"]),
        ]
        for run in [*found["runs"], serially]
    ]
    where = (
        f"{machine['measured']} UTC, on one machine with {machine['cores']} cores, {machine['memory_gib']:g} GiB, "
        f"Linux {machine['kernel']}: the nodes are containers on it, so they share its cores with Ansible. Single runs."
    )
    more = (
        f"For {projection['nodes']} nodes with {projection['forks']} forks that comes to {projection['seconds']} s: "
        f"{projection['start_s']:g} s to start and {projection['seconds_a_node']:g} s a node, for which Ansible works "
        f"{projection['controller_cpu_seconds_a_node']:g} s on the cores it has. Computed, not measured: "
        f"{projection['how']}"
    )
    return "\n\n".join([table(rows), where, table(_targets(found, TARGETS)), more])


SCALE_ROWS = {
    "render_s": "`helm template`, seconds (best of 3)",
    "install_s": "`helm install`, seconds",
    "bound_s": "from there until all pods are bound, each to a node of its own, seconds",
    "endpoints_s": "until the Service has all addresses, seconds",
    "status_s": "`rankzero status`, seconds",
    "install_requests": "requests of `helm install` to the API",
    "status_requests": "requests of `rankzero status`",
    "uninstall_requests": "requests of `helm uninstall`",
}

SCALE_TARGETS = {
    "render_s": "`helm template` of the large one: seconds",
    "more_install_requests": "requests of `helm install` beyond those of the small one",
    "more_status_requests": "requests of `rankzero status` beyond those of the small one",
    "more_uninstall_requests": "requests of `helm uninstall` beyond those of the small one",
}


def _scale(found: dict[str, Any]) -> str:
    machine, settings, releases = found["machine"], found["settings"], found["releases"]
    rows = [["", *(f"{one['pods']:,} pods" for one in releases)]]
    rows += [[meaning, *(f"{one[key]:g}" for one in releases)] for key, meaning in SCALE_ROWS.items()]
    where = (
        f"{machine['measured']} UTC, {machine['cores']} cores, {machine['memory_gib']:g} GiB, "
        f"Linux {machine['kernel']}, Kubernetes {machine['kubernetes']}, KWOK {settings['kwok']}, "
        f"{settings['nodes']:,} nodes, {settings['gpus_per_pod']} GPUs a pod. Single runs."
    )
    return "\n\n".join([table(rows), where, table(_targets(found, SCALE_TARGETS))])


def _data(found: dict[str, Any]) -> str:
    machine, speed = found["machine"], found["speed"]
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    where = (
        f"{machine['measured']} UTC, {machine['cores']} cores, {machine['memory_gib']:g} GiB, "
        f"Linux {machine['kernel']}; {versions}. Samples/s: medians over {speed['images']:,} JPEG photographs of "
        f"{speed['mean_bytes']:,} bytes in the mean, as bytes. Cold: none of them in memory, workers not started, the "
        "cache folder empty; warm: a later epoch."
    )
    return "\n\n".join([table(readers.exactness(found)), table(readers.speed(found)), where])


def _targets(found: dict[str, Any], meanings: Mapping[str, str]) -> list[list[str]]:
    rows = [["target", "limit", "measured", ""]]
    return rows + [
        [meanings[name], f"{target['target']:g}", f"{target['value']:g}", "met" if target["met"] else "missed"]
        for name, target in found["targets"].items()
    ]


def _drill(drill: Drill, result: dict[str, Any] | None) -> list[str]:
    target = "" if drill.target is None else f"{drill.target:g} s"
    took, how = "", ""
    if result:
        took = _seconds(result["seconds"])
        took += "" if result["since_struck"] is None else f" ({result['since_struck']:.1f} since it was struck)"
        how = "passed" if result["passed"] else "**fell short**"
        if result["passed"] and drill.target is not None and result["seconds"] > drill.target:
            how = "passed, **target missed**"
    return [f"`{drill.name}`", drill.done, drill.expected, f"{drill.within:g} s", target, took, how]


def _drills_again(strategy: str, results: dict[str, Any]) -> list[str]:
    """The drills that were run with another strategy: a short table, and where it was."""
    found = [(drill, results.get(name_of(drill, strategy))) for drill in catalogue.DRILLS]
    columns = slice(3, None)
    rows = [
        [_drill(drill, one)[0], *_drill(drill, one)[columns], str(one["steps_repeated"])] for drill, one in found if one
    ]
    if not rows:
        return []
    heading = ["drill", "within", "target", "took", "", "steps repeated"]
    return [f"With `train.parallel.strategy: {strategy}`:", table([heading, *rows]), *_drilled_on(results)]


def _drilled_on(results: dict[str, Any]) -> list[str]:
    """One sentence for each machine, and image, that a result in the table is from."""
    dates: dict[str, list[str]] = {}
    for one in results.values():
        machine = one["machine"]
        where = f"{machine['cores']} cores, {machine['memory_gib']:g} GiB, Linux {machine['kernel']}"
        where += f"; image `{one['image']}`"
        dates.setdefault(where, []).append(machine["measured"])
    return [
        f"Measured {min(when)} to {max(when)} UTC on the local cluster: {where}. Times are single runs."
        for where, when in dates.items()
    ]


def _quoted(text: str) -> str:
    """What a record says, on one line and without a meaning to Markdown."""
    return f"`{' '.join(text.split()).replace('`', chr(39))}`"


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f}"
