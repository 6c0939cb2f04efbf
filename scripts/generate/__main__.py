"""``python -m scripts.generate``: write every generated file; ``--golden`` the renderings as well."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from scripts.cache import REPO
from scripts.entry import guarded
from scripts.generate import defaults, files, golden, inventory, measured, reference, refusals, roles, schema, upgrades

GENERATED: dict[Path, Callable[[], str]] = {
    files.SCHEMA: schema.render,
    files.DEFAULTS: defaults.render,
    files.REFERENCE: reference.render,
    files.REFUSALS: refusals.render,
    files.PACKAGE_README: reference.render_package,
    files.RECOVERY: measured.recovery,
    files.DRILLS: measured.drills,
    files.FRONT_PAGE: measured.front_page,
    files.NODES: measured.nodes,
    files.SCALE: measured.scale,
    files.DATA: measured.data,
    inventory.PATH: inventory.render,
}


def main(arguments: list[str] | None = None) -> int:
    """Write what has changed and say so on standard output."""
    parser = argparse.ArgumentParser(prog="python -m scripts.generate", description=__doc__)
    parser.add_argument("--golden", action="store_true", help="also what Helm must render first: scenarios, upgrades")
    options = parser.parse_args(arguments)
    for path, render in GENERATED.items():
        write(path, render())
    for role in roles.roles():
        write(roles.readme(role), roles.render(role))
    if options.golden:
        for scenario in golden.scenarios():
            write(golden.path(scenario), golden.render(scenario))
        write(files.UPGRADES, upgrades.render())
    return 0


def write(path: Path, text: str) -> None:
    """Write ``text`` unless the file holds it already."""
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    print(f"wrote {path.relative_to(REPO)}")  # noqa: T201


if __name__ == "__main__":
    sys.exit(guarded(main))
