"""``rankzero fetch-code``: one revision of a git repository, before the trainer starts. Needs git in the image.

Neither password nor key reaches a command line, the log or the folder with the code. Submodules and files of Git LFS
are not fetched.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from rankzero.errors import ConfigError, PreflightError

COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
"""A full hash, SHA-1 or SHA-256."""
SHA256_DIGITS = 64
USERNAME, PASSWORD = "username", "password"
"""Keys of a Secret of type kubernetes.io/basic-auth."""
SSH_KEY, KNOWN_HOSTS = "ssh-privatekey", "known_hosts"
"""Keys of a Secret of type kubernetes.io/ssh-auth; the second is customary."""
WITHIN = 1800.0
"""Seconds for one command of git; the limits below end most that hang long before."""
HTTP_LIMITS = ("-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=120")
"""Give up where no byte came for that many seconds; a server that counts objects sends a few."""
SSH_LIMITS = "-o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15 -o ServerAliveCountMax=4"
SAID = 2000
"""Last characters of what git said that an error repeats."""
PAUSES = (2.0, 5.0, 15.0, 30.0, 60.0, 120.0, 120.0)
"""Seconds between tries to reach the repository: a pod's network may need a moment, a server is away for minutes while
it is upgraded, and all pods of a Job count against one limit."""
PRIVATE = "rankzero-git-"
"""Prefix of the folder that holds key or password meanwhile."""
OTHER_FORMAT = "mismatched algorithms"
"""What git says where the repository's hashes are SHA-256 and those of the folder SHA-1."""
FINAL = (
    OTHER_FORMAT,
    "Authentication failed",
    "could not read Username",
    "Permission denied",
    "Host key verification failed",
)
"""What git says where another try would end the same."""


def fetch(repository: str, revision: str, folder: Path, credentials: Path) -> str:
    """Have ``revision``, a full commit hash or a tag, in ``folder`` and nothing else; returns its commit.

    ``credentials`` is a mounted Secret, or no folder where none is needed. A folder that holds the commit already,
    after a restart of the node say, is put right without asking the repository; any other is emptied first, since a
    fetch that was killed leaves locks and half objects. Raises :class:`ConfigError` for a revision that is not there
    and for a Secret that lacks a key, and :class:`PreflightError` where git is missing or the repository cannot be
    reached.
    """
    if shutil.which("git") is None:
        raise PreflightError(
            "git is not in this image", hint="build it on a base that has git, or that can install it by apt"
        )
    for left in Path(tempfile.gettempdir()).glob(f"{PRIVATE}*"):  # of a fetch that was killed: the trainer's /tmp too
        shutil.rmtree(left)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=PRIVATE) as private:
        git = Git(folder, {**os.environ, **access(repository, credentials, Path(private))})
        is_commit = COMMIT.fullmatch(revision) is not None
        if is_commit and git.has(revision):
            with contextlib.suppress(PreflightError):
                return _check_out(git, revision)
        wanted = revision if is_commit else f"refs/tags/{revision}"
        try:
            _begin(git, folder, "sha256" if is_commit and len(revision) == SHA256_DIGITS else "sha1")
            _obtain(git, repository, wanted)
        except PreflightError as error:
            if OTHER_FORMAT not in error.message:
                raise
            _begin(git, folder, "sha256")
            _obtain(git, repository, wanted)
        return _check_out(git, revision if is_commit else "FETCH_HEAD")


class Git:
    """git in one folder, never asking a person."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = {
            **environment,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_CEILING_DIRECTORIES": str(folder.resolve().parent),  # no repository around it
            "LC_ALL": "C",
        }

    def run(self, *arguments: str) -> str:
        """Its standard output. Raises :class:`PreflightError` with what it said."""
        with subprocess.Popen(
            ["git", "-C", str(self._folder), *HTTP_LIMITS, *arguments],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        ) as process:
            try:
                output, said = process.communicate(timeout=WITHIN)
            except subprocess.TimeoutExpired:
                _kill(process)
                raise PreflightError(f"git {arguments[0]} has not ended within {WITHIN:g} s") from None
            except BaseException:  # this process is being stopped
                _kill(process)
                raise
        if process.returncode:
            raise PreflightError(f"git {arguments[0]} failed: {said.strip()[-SAID:]}")
        return output

    def has(self, commit: str) -> bool:
        """Whether the folder holds the commit."""
        try:
            self.run("cat-file", "-e", f"{commit}^{{commit}}")
        except PreflightError:
            return False
        return True


def _kill(process: subprocess.Popen[str]) -> None:
    """With the children that do its work, which hold its output open."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _begin(git: Git, folder: Path, object_format: str) -> None:
    """An empty repository."""
    _empty(folder)
    git.run("init", "--quiet", f"--object-format={object_format}")


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _check_out(git: Git, revision: str) -> str:
    git.run("checkout", "--quiet", "--force", "--detach", revision)
    git.run("clean", "--quiet", "-ffdx")
    return git.run("rev-parse", "HEAD").strip()


def _obtain(git: Git, repository: str, wanted: str) -> None:
    """Fetch one commit without its history; with all of it from a server that does not hand out single commits."""
    for pause in (*PAUSES, None):
        try:
            git.run("fetch", "--quiet", "--depth=1", "--no-tags", "--", repository, wanted)
        except PreflightError as error:
            if "couldn't find remote ref" in error.message:
                raise ConfigError(
                    f"{repository} has no {wanted.removeprefix('refs/tags/')}",
                    hint="code.git.revision is a full commit hash or a tag that has been pushed; a branch is none",
                ) from error
            if "not our ref" in error.message or "unadvertised object" in error.message:
                _obtain_all(git, repository, wanted)
                return
            if pause is None or any(words in error.message for words in FINAL):
                raise PreflightError(
                    f"cannot fetch {repository}: {error.message}",
                    hint="look at the address, at what the pod may reach, and at code.git.secret",
                ) from error
            print(f"rankzero: {error.message}; once more in {pause:g} s", flush=True)  # noqa: T201
            time.sleep(pause)
        else:
            return


def _obtain_all(git: Git, repository: str, wanted: str) -> None:
    git.run("fetch", "--quiet", "--", repository, "+refs/*:refs/fetched/*")
    if not git.has(wanted):
        raise ConfigError(f"{repository} has no commit {wanted}", hint="push it, or correct code.git.revision")


def access(repository: str, credentials: Path, private: Path) -> dict[str, str]:
    """Variables by which git uses the Secret, for this repository's host alone. Files go to ``private``."""
    if not credentials.is_dir():
        return {}
    if (credentials / SSH_KEY).exists():
        key = private / "key"
        key.touch(0o600)
        key.write_text(_value(credentials, SSH_KEY) + "\n", encoding="utf-8")
        _value(credentials, KNOWN_HOSTS)
        options = (
            f"-o IdentitiesOnly=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile={credentials / KNOWN_HOSTS}"
        )
        return {"GIT_SSH_COMMAND": f"ssh -i {key} {options} {SSH_LIMITS}"}
    answer = private / "answer"
    answer.touch(0o600)
    answer.write_text(
        "".join(f"{name}={_value(credentials, name)}\n" for name in (USERNAME, PASSWORD)), encoding="utf-8"
    )
    address = urlsplit(repository)
    return {
        "GIT_CONFIG_COUNT": "1",
        # Asked for this host only: a redirect to another one does not get the password.
        "GIT_CONFIG_KEY_0": f"credential.{address.scheme}://{address.netloc.rpartition('@')[2]}.helper",
        "GIT_CONFIG_VALUE_0": f"!f() {{ cat '{answer}'; }}; f",
    }


def _value(credentials: Path, key: str) -> str:
    path = credentials / key
    try:
        value = path.read_text(encoding="utf-8").rstrip("\n")
    except OSError as error:
        raise ConfigError(
            f"the Secret of code.git.secret has no readable key {key}: {error.strerror}",
            hint=f"it needs {USERNAME} and {PASSWORD}, or {SSH_KEY} and {KNOWN_HOSTS}",
        ) from error
    if not value or (key in (USERNAME, PASSWORD) and not value.isprintable()):
        raise ConfigError(f"{key} of code.git.secret is empty or has several lines", hint="write it as one line")
    return value
