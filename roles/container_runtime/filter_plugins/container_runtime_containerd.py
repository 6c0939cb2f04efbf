"""Filters of the role container_runtime: what has to be in containerd's configuration files, from what is in them.

Works on the files themselves, not on `containerd config dump`: its output is migrated to the newest version, and a
drop-in of a higher version than the main file keeps some releases of containerd from starting.
"""

from __future__ import annotations

import copy
import fnmatch
import json
import posixpath
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Table = dict[str, Any]

RUNTIME_PLUGIN = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime", 4: "io.containerd.cri.v1.runtime"}
"""Where a configuration of each version has the runtimes' section."""

CRI_PLUGINS = ("cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images")
"""The names by which the CRI plugin is disabled; packages of Docker do it."""

MERGES_SECTIONS = (2, 1)
"""The first release of containerd in which a drop-in adds to a plugin's section instead of replacing it."""

MIGRATES_DROP_INS = (2, 4)
"""The first release of containerd all of whose patches read files of different versions together (2.3.0 does not)."""

LIKELY_RUNTIMES = ("runc", "crun")

RUNC = "io.containerd.runc.v2"
"""The type of runtimes that are started as runc is; NVIDIA's is one of them."""


def plan(config: Mapping[str, Any], version: str | None, wanted: Mapping[str, Any]) -> Table:
    """What has to change in containerd's files so that they say what is ``wanted``.

    ``config`` is what the node has: ``path`` of the main file, ``drop_in`` for the role's own, and in the order in
    which containerd reads them the ``files``, each a ``path`` and a ``text``. ``wanted`` has the ``handler`` ("" for
    none), its ``binary``, and whether it is the ``default`` and ``cdi`` is on.

    Returns ``write``, texts by path; ``remove``, paths; ``problems``, a sentence for each thing that stands in the way
    (then nothing else may be done); ``runtimes`` and ``default``, what containerd will have.
    """
    nothing: Table = {"write": {}, "remove": [], "problems": [], "runtimes": {}, "default": ""}
    present = any(file["path"] == config["drop_in"] for file in config["files"])
    if not version and not (wanted["handler"] or wanted["cdi"] or present):
        return nothing
    try:
        return _plan(config, _release(version), wanted)
    except ValueError as error:
        return nothing | {"problems": [str(error)]}


def _plan(config: Mapping[str, Any], release: tuple[int, int], wanted: Mapping[str, Any]) -> Table:
    main, own = config["path"], config["drop_in"]
    texts = {file["path"]: file["text"] for file in config["files"]}
    files = {path: _parse(path, text) for path, text in texts.items() if path != own}
    files.setdefault(main, {})
    if main not in texts:
        texts[main] = f"version = {2 if release < (2, 0) else 3}\n"
        files[main] = tomllib.loads(texts[main])
    _refuse_higher_versions(main, files, release)
    write: dict[str, str] = {}
    if "version" not in files[main]:
        write[main] = _with_version(main, texts[main], files[main])
        files[main] = tomllib.loads(write[main])
    number = _number(main, files[main])

    base: Table = {}
    for path, file in files.items():
        base = _laid_over(base, _section(path, file), release)
    additions = _additions(base, wanted, release)
    section = additions if release >= MERGES_SECTIONS or not additions else _merged(base, additions)
    if section:
        write[own] = _drop_in(number, section, whole=release < MERGES_SECTIONS)
        if not _imports(main, files[main], own):
            pattern = own.removesuffix(".toml") + "*.toml"
            imports = [*files[main].get("imports", []), pattern]
            write[main] = _with_array(main, write.get(main, texts[main]), "imports", imports)
    for path, file in files.items():
        disabled = file.get("disabled_plugins", [])
        kept = [name for name in disabled if name not in CRI_PLUGINS]
        if kept != disabled:
            write[path] = _with_array(path, write.get(path, texts[path]), "disabled_plugins", kept)

    result = _effective(files, main, own, {"version": number, "plugins": {RUNTIME_PLUGIN[number]: section}}, release)
    problems = _problems(result, wanted, config)
    return {
        "write": {path: text for path, text in write.items() if not problems and texts.get(path) != text},
        "remove": [own] if own in texts and not section and not problems else [],
        "problems": problems,
        "runtimes": result["runtimes"],
        "default": result["default_runtime_name"],
    }


def _release(version: str | None) -> tuple[int, int]:
    found = re.match(r"v?(\d+)\.(\d+)", version or "")
    if not found:
        raise ValueError("containerd does not tell its version; see whether `containerd --version` works on the node.")
    return int(found[1]), int(found[2])


def _parse(path: str, text: str) -> Table:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(
            f"{path} is not TOML ({error}), so containerd will not start again. Correct the file or remove it."
        ) from error


def _number(path: str, file: Mapping[str, Any]) -> int:
    number = int(file.get("version", 1))
    if number not in RUNTIME_PLUGIN:
        raise ValueError(
            f"{path} has configuration version {number}, and the role knows {', '.join(map(str, RUNTIME_PLUGIN))}. "
            "Rewrite it with `containerd config migrate`."
        )
    return number


def _refuse_higher_versions(main: str, files: Mapping[str, Table], release: tuple[int, int]) -> None:
    number = files[main].get("version", 1)
    for path, file in files.items():
        if release < MIGRATES_DROP_INS and file.get("version", 1) > number:
            raise ValueError(
                f"{path} has configuration version {file['version']} and {main} only {number}, so containerd "
                f"{'.'.join(map(str, release))} will not start again. Give both the same version."
            )


def _with_version(path: str, text: str, file: Mapping[str, Any]) -> str:
    """A main file without version, as packages of Docker have it, in the lowest version that all releases read."""
    others = set(file.get("disabled_plugins", [])) - set(CRI_PLUGINS)
    if file.get("plugins") or others:
        raise ValueError(
            f"{path} says no version, and what it sets means something else in a newer one. Rewrite it with "
            "`containerd config migrate`."
        )
    return f"version = 2\n{text}"


def _section(path: str, file: Mapping[str, Any]) -> Table:
    plugins: Table = file.get("plugins", {})
    section: Table = plugins.get(RUNTIME_PLUGIN[_number(path, file)], {}) if plugins else {}
    return section


def _merged(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> Table:
    """Tables merged by key, everything else taken from ``upper``."""
    result = copy.deepcopy(dict(lower))
    for key, value in upper.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merged(result[key], value) if both else copy.deepcopy(value)
    return result


def _laid_over(lower: Table, upper: Table, release: tuple[int, int]) -> Table:
    """What containerd makes of a plugin's section in two files."""
    if not upper:
        return lower
    return _merged(lower, upper) if release >= MERGES_SECTIONS else copy.deepcopy(upper)


def _additions(base: Table, wanted: Mapping[str, Any], release: tuple[int, int]) -> Table:
    """What ``base`` lacks of the ``wanted``; nothing where somebody else has set all of it."""
    section: Table = {}
    if wanted["handler"]:
        section["containerd"] = {"runtimes": {wanted["handler"]: _handler(base, wanted)}}
        if wanted["default"]:
            section["containerd"]["default_runtime_name"] = wanted["handler"]
    # From containerd 2.0 on it is on unless a file says otherwise.
    if wanted["cdi"] and base.get("enable_cdi", release >= (2, 0)) is not True:
        section["enable_cdi"] = True
    return {} if _merged(base, section) == base else section


def _handler(base: Table, wanted: Mapping[str, Any]) -> Table:
    """The handler with all that the node's usual runtime has (SystemdCgroup, a snapshotter, annotations)."""
    containerd = base.get("containerd", {})
    runtimes = containerd.get("runtimes", {})
    present = runtimes.get(wanted["handler"], {})
    usual = (containerd.get("default_runtime_name"), *LIKELY_RUNTIMES)
    # Not kata's or gVisor's, which take other options and do not start NVIDIA's runtime.
    fit = (name for name in usual if name != wanted["handler"] and _is_runc(name, runtimes.get(name, {})))
    model: Table = runtimes.get(next(fit, ""), {})
    binary = present.get("options", {}).get("BinaryName") or wanted["binary"]
    # Without a type, every sandbox of the handler fails (NVIDIA/nvidia-container-toolkit#1956).
    return _merged(_merged({"runtime_type": RUNC}, model), _merged(present, {"options": {"BinaryName": binary}}))


def _is_runc(name: str, runtime: Mapping[str, Any]) -> bool:
    """A drop-in may add to containerd's own runc without repeating its type; any other runtime says one."""
    return bool(runtime) and runtime.get("runtime_type", RUNC if name in LIKELY_RUNTIMES else "") == RUNC


def _imports(main: str, file: Mapping[str, Any], path: str) -> bool:
    return _turn(main, file, path) >= 0


def _matches(path: str, pattern: str) -> bool:
    """As Go's filepath.Glob, whose ``*`` does not go beyond a slash."""
    names, patterns = path.split("/"), pattern.split("/")
    return len(names) == len(patterns) and all(map(fnmatch.fnmatchcase, names, patterns))


def _effective(files: Mapping[str, Table], main: str, own: str, drop_in: Table, release: tuple[int, int]) -> Table:
    """The runtimes and the default that containerd will have, its own runc among them."""
    section: Table = {}
    for path, file in _in_order(files, main, own, drop_in):
        section = _laid_over(section, _section(path, file), release)
    containerd = section.get("containerd", {})
    runtimes: Table = containerd.get("runtimes", {})
    return {
        "runtimes": _merged({"runc": {"runtime_type": RUNC}}, runtimes),
        "default_runtime_name": containerd.get("default_runtime_name", "runc"),
    }


def _turn(main: str, file: Mapping[str, Any], path: str, *, of_new: bool = False) -> int:
    """Which of the main file's imports brings a file; none brings the main file itself, or one that another imports.

    ``of_new`` is for the role's file, which gets an import at the end where it has none.
    """
    patterns = [posixpath.normpath(posixpath.join(posixpath.dirname(main), name)) for name in file.get("imports", [])]
    brought = [index for index, pattern in enumerate(patterns) if _matches(path, pattern)]
    return brought[0] if brought else len(patterns) if of_new else -1


def _in_order(files: Mapping[str, Table], main: str, own: str, drop_in: Table) -> Iterator[tuple[str, Table]]:
    """The role's drop-in at its place: among those of its folder by name, before what a later import brings."""
    siblings = [path for path in files if posixpath.dirname(path) == posixpath.dirname(own)]
    later = [path for path in files if _turn(main, files[main], path) > _turn(main, files[main], own, of_new=True)]
    after = next((path for path in siblings if path > own), None) or next(iter(later), None)
    for path, file in files.items():
        if path == after:
            yield own, drop_in
        yield path, file
    if after is None:
        yield own, drop_in


def _problems(result: Table, wanted: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    problems = []
    default, runtimes = result["default_runtime_name"], result["runtimes"]
    if default not in runtimes:
        problems.append(
            f"the default runtime is {default}, and containerd's files define only {', '.join(sorted(runtimes))}, so "
            f"the CRI would not start again. Correct default_runtime_name in one of {_names(config)}."
        )
    handler = wanted["handler"]
    if handler and (handler not in runtimes or (wanted["default"] and default != handler)):
        problems.append(
            f"a file that is read after {config['drop_in']} takes the runtime {handler} away again. Rename it, or make "
            f"its changes in the main file; containerd reads {_names(config)}."
        )
    return problems


def _names(config: Mapping[str, Any]) -> str:
    return ", ".join(file["path"] for file in config["files"] if file["path"] != config["drop_in"]) or config["path"]


def _drop_in(number: int, section: Table, *, whole: bool) -> str:
    lines = ["# Written by rankzero's role container_runtime; playbooks/reset.yml removes it."]
    if whole:
        lines += [
            "# Before containerd 2.1 a drop-in replaces the whole section of a plugin: what the other files say of it",
            "# is repeated here, and a change there has no effect until the role has run again.",
        ]
    content = {"version": number, "plugins": {RUNTIME_PLUGIN[number]: section}}
    return "\n".join([*lines, toml_text(content)])


def _with_array(path: str, text: str, key: str, values: Sequence[str]) -> str:
    """``text`` with another value of a top-level array and nothing else changed: comments and order stay."""
    before = tomllib.loads(text)
    line = f"{key} = {json.dumps(values)}"
    start = _top_level(text, key)
    if start is None:
        version = _top_level(text, "version")
        at = 0 if version is None else text.index("\n", version) + 1 if "\n" in text[version:] else len(text)
        new = f"{text[:at]}{'' if at == 0 or text[:at].endswith(chr(10)) else chr(10)}{line}\n{text[at:]}"
    else:
        new = text[:start] + line + text[_array_end(text, start) :]
    if _loads(new) != before | {key: values}:
        raise ValueError(f"{path} is written in a way in which the role cannot change {key}. Write `{line}` yourself.")
    return new


def _loads(text: str) -> Table | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None


def _top_level(text: str, key: str) -> int | None:
    """Where ``key`` begins before the first table."""
    table = re.search(r"^[ \t]*\[", text, re.MULTILINE)
    found = re.search(rf"^[ \t]*({re.escape(key)})[ \t]*=", text, re.MULTILINE)
    if found is None or (table is not None and table.start() < found.start()):
        return None
    return found.start(1)


def _array_end(text: str, start: int) -> int:
    """Where the array that is assigned at ``start`` ends; strings and comments may have brackets."""
    token = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*'|#[^\n]*|[\[\]]|[^\[\]\"'#]+")
    depth = 0
    for found in token.finditer(text, start):
        depth += {"[": 1, "]": -1}.get(found[0], 0)
        if depth == 0 and found[0] == "]":
            return found.end()
    return len(text)


def toml_text(table: Mapping[str, Any], prefix: str = "") -> str:
    """A table as TOML. Written here because Python reads TOML and does not write it, and the machine that runs Ansible
    should need nothing beside Ansible."""
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    tables = {key: value for key, value in table.items() if isinstance(value, dict)}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    text = "".join(f"{line}\n" for line in lines)
    for key, value in tables.items():
        name = f"{prefix}{_key(key)}"
        body = toml_text(value, f"{name}.")
        # A table that has only tables is named by theirs.
        head = "" if value and all(isinstance(part, dict) for part in value.values()) else f"\n[{name}]\n"
        text += f"{head}{body}"
    return text


def _key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, bool | str):
        # JSON's strings are TOML's, but for the one control character that JSON does not escape.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_key(key)} = {_value(part)}' for key, part in value.items())}}}"
    raise ValueError(f"the role does not write values such as {value!r} of containerd's configuration")


def reset_plan(record: Mapping[str, Mapping[str, Any]], texts: Mapping[str, str]) -> Table:
    """What brings back the files that the role has changed: ``write``, ``remove``, and ``left``, files that somebody
    else has changed since. The CRI stays enabled: without it the node could not run pods."""
    changes: Table = {"write": {}, "remove": [], "left": []}
    for path, entry in sorted(record.items()):
        before = entry["before"]
        if texts.get(path) not in (entry["set"], entry.get("earlier", entry["set"])):
            changes["left"] += [path] if path in texts else []
        elif before is None:
            changes["remove"].append(path)
        else:
            changes["write"][path] = _with_cri(path, before)
    return changes


def _with_cri(path: str, text: str) -> str:
    disabled = (_loads(text) or {}).get("disabled_plugins", [])
    kept = [name for name in disabled if name not in CRI_PLUGINS]
    return text if kept == disabled else _with_array(path, text, "disabled_plugins", kept)


class FilterModule:
    """Ansible's entry point."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters by the names that the role's YAML uses."""
        return {"container_runtime_containerd_plan": plan, "container_runtime_reset_plan": reset_plan}
