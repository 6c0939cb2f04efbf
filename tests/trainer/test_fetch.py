"""`rankzero fetch-code` against real repositories: files, and git's own HTTP server behind a password."""

from __future__ import annotations

import base64
import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rankzero import contract, fetch
from rankzero.errors import ConfigError, PreflightError

NOBODY = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.com", "GIT_CONFIG_GLOBAL": os.devnull}
NOBODY |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.com"}
TOKEN = "a-token-that-nobody-may-see"  # noqa: S105


def git(folder: Path, *arguments: str) -> str:
    environment = {**os.environ, **NOBODY}
    done = subprocess.run(
        ["git", "-C", folder, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(folder: Path, text: str) -> str:
    """Write train.py, commit it and return the hash."""
    (folder / "train.py").write_text(text)
    git(folder, "add", "train.py")
    git(folder, "commit", "--message", text)
    return git(folder, "rev-parse", "HEAD")


class Repository:
    """Two commits; the first has the tag v1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        git(folder, "init", "--quiet", "--initial-branch=main")
        self.first = commit(folder, "print(1)")
        git(folder, "tag", "v1")
        self.second = commit(folder, "print(2)")
        self.url = f"file://{folder}"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


NONE = Path("/no/credentials")


def test_a_commit_and_a_tag_are_fetched_as_they_are(repository: Repository, tmp_path: Path) -> None:
    assert fetch.fetch(repository.url, repository.first, tmp_path / "a", NONE) == repository.first
    assert (tmp_path / "a" / "train.py").read_text() == "print(1)"
    git(repository.folder, "tag", "--annotate", "--message", "x", "v2")
    assert fetch.fetch(repository.url, "v2", tmp_path / "b", NONE) == repository.second
    assert (tmp_path / "b" / "train.py").read_text() == "print(2)"


@pytest.mark.parametrize("revision", ["v1", ""])
def test_a_repository_with_hashes_of_sha_256_is_fetched_too(tmp_path: Path, revision: str) -> None:
    source = tmp_path / "source"
    source.mkdir()
    git(source, "init", "--quiet", "--object-format=sha256")
    newest = commit(source, "one")
    git(source, "tag", "v1")
    target = tmp_path / "code"
    assert fetch.fetch(str(source), revision or newest, target, NONE) == newest
    assert len(newest) == fetch.SHA256_DIGITS


def test_what_a_killed_fetch_has_left_of_its_secret_is_removed(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trainer has the same /tmp."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / f"{fetch.PRIVATE}abc" / "key"
    left.parent.mkdir()
    left.write_text("secret")
    fetch.fetch(repository.url, "v1", tmp_path / "code", NONE)
    assert list(tmp_path.glob(f"{fetch.PRIVATE}*")) == []


def test_a_commit_that_is_there_is_put_right_without_the_repository(repository: Repository, tmp_path: Path) -> None:
    """A node that restarts runs init containers again, over what they left, and perhaps before the network is up."""
    code = tmp_path / "code"
    fetch.fetch(repository.url, repository.first, code, NONE)
    (code / "train.py").write_text("half")
    (code / "stray.py").touch()
    assert fetch.fetch("file:///gone", repository.first, code, NONE) == repository.first
    assert (code / "train.py").read_text() == "print(1)"
    assert not (code / "stray.py").exists()


def test_a_folder_with_another_revision_gets_the_wanted_one(repository: Repository, tmp_path: Path) -> None:
    fetch.fetch(repository.url, repository.second, tmp_path / "code", NONE)
    fetch.fetch(repository.url, "v1", tmp_path / "code", NONE)
    assert (tmp_path / "code" / "train.py").read_text() == "print(1)"


def test_a_server_that_hands_out_branches_only_is_asked_for_all_of_them(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """git's default before protocol 2, which some servers keep: a commit that no branch or tag ends at is not ours."""
    commit(repository.folder, "print(3)")
    code, settings = tmp_path / "code", tmp_path / "gitconfig"
    settings.write_text("[protocol]\nversion = 0\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(settings))
    code.mkdir()
    git(code, "init", "--quiet")
    with pytest.raises(subprocess.CalledProcessError):
        git(code, "-c", "protocol.version=0", "fetch", repository.url, repository.second)
    assert fetch.fetch(repository.url, repository.second, code, NONE) == repository.second
    assert (code / "train.py").read_text() == "print(2)"


@pytest.mark.parametrize("left", ["index.lock", "shallow.lock", "HEAD", "objects"])
@pytest.mark.parametrize("revision", ["commit", "v1"])
def test_what_a_killed_fetch_has_left_is_in_nobodys_way(
    repository: Repository, tmp_path: Path, revision: str, left: str
) -> None:
    """The folder lives as long as the pod, so each restart of the container would meet it again."""
    code = tmp_path / "code"
    wanted = repository.first if revision == "commit" else revision
    fetch.fetch(repository.url, wanted, code, NONE)
    (code / "train.py").write_text("half")
    if left == "objects":
        for path in (code / ".git/objects").rglob("*"):
            if path.is_file():
                path.chmod(0o600)
                path.write_bytes(b"")
    else:
        (code / ".git" / left).write_bytes(b"")
    assert fetch.fetch(repository.url, wanted, code, NONE) == repository.first
    assert (code / "train.py").read_text() == "print(1)"


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        yield server


def url_of(server: socket.socket) -> str:
    return f"http://127.0.0.1:{server.getsockname()[1]}/a.git"


def test_a_server_that_never_answers_is_not_waited_for_for_ever(
    silent: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "PAUSES", ())
    monkeypatch.setattr(fetch, "HTTP_LIMITS", ("-c", "http.lowSpeedLimit=1", "-c", "http.lowSpeedTime=2"))
    with pytest.raises(PreflightError, match="Operation too slow"):
        fetch.fetch(url_of(silent), "v1", tmp_path / "code", NONE)


def test_a_git_that_hangs_is_ended_with_its_children(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin/git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nsleep 1000 & wait\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(fetch, "WITHIN", 0.5)
    with pytest.raises(PreflightError, match=r"has not ended within 0\.5 s"):
        fetch.fetch(repository.url, "v1", tmp_path / "code", NONE)


def test_a_fetch_that_is_stopped_ends_at_once_and_so_does_git(silent: socket.socket, tmp_path: Path) -> None:
    """It is PID 1 of its container, and the pod is being deleted."""
    command = [sys.executable, "-m", "rankzero.cli", "fetch-code", url_of(silent), "v1", str(tmp_path / "code")]
    with subprocess.Popen([*command, "--credentials", str(NONE)], stderr=subprocess.PIPE, text=True) as process:
        connection, _ = silent.accept()
        with connection:
            connection.settimeout(30)
            process.terminate()
            assert process.wait(30) == 128 + signal.SIGTERM
            while connection.recv(65536):
                pass  # what git has asked; then the end of its connection
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


@pytest.mark.parametrize("revision", ["main", "v9", "0" * 40])
def test_a_branch_and_what_is_not_there_are_refused(repository: Repository, tmp_path: Path, revision: str) -> None:
    with pytest.raises(ConfigError, match=f"has no (commit )?{revision}") as caught:
        fetch.fetch(repository.url, revision, tmp_path / "code", NONE)
    assert caught.value.exit_code == contract.EXIT_USAGE


def test_a_repository_that_is_reached_a_moment_later_is_fetched(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod's network may need a moment."""
    away = repository.folder.rename(tmp_path / "away")
    monkeypatch.setattr(fetch, "PAUSES", (0.0, 0.0))
    monkeypatch.setattr(time, "sleep", lambda _: away.exists() and away.rename(repository.folder))
    assert fetch.fetch(repository.url, "v1", tmp_path / "code", NONE) == repository.first


def test_a_repository_that_cannot_be_reached_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "PAUSES", (0.0,))
    with pytest.raises(PreflightError, match="cannot fetch file:///no/such/repository") as caught:
        fetch.fetch("file:///no/such/repository", "v1", tmp_path / "code", NONE)
    assert caught.value.exit_code == contract.EXIT_PREFLIGHT


def test_an_image_without_git_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PreflightError, match="git is not in this image"):
        fetch.fetch("file:///a", "v1", tmp_path / "code", NONE)


# --- Private repositories ------------------------------------------------------------------------------------


class Gate(http.server.ThreadingHTTPServer):
    """git's own server behind a password; /away leads to this machine's other name."""

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.root = root
        self.seen: set[str] = set()
        """Every Authorization header, empty where there was none."""


class Handler(http.server.BaseHTTPRequestHandler):
    """One request."""

    server: Gate
    EXPECTED = "Basic " + base64.b64encode(f"robot:{TOKEN}".encode()).decode()

    def do_GET(self) -> None:
        given = self.headers.get("Authorization", "")
        self.server.seen.add(given)
        if self.path.startswith("/away/"):
            away = f"http://localhost:{self.server.server_port}{self.path.removeprefix('/away')}"
            self._answer({"Status": "302", "Location": away}, b"")
        elif given != self.EXPECTED:
            self._answer({"Status": "401", "WWW-Authenticate": 'Basic realm="git"'}, b"")
        else:
            self._serve()

    do_POST = do_GET

    def _serve(self) -> None:
        path, _, query = self.path.partition("?")
        environment = {
            "GIT_PROJECT_ROOT": str(self.server.root), "GIT_HTTP_EXPORT_ALL": "1", "REMOTE_USER": "robot",
            "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""), "GATEWAY_INTERFACE": "CGI/1.1",
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "HTTP_GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }  # fmt: skip
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = subprocess.run(
            ["git", "http-backend"], env={**os.environ, **environment}, input=body, capture_output=True, check=True
        )
        head, _, content = answer.stdout.partition(b"\r\n\r\n")
        self._answer(dict(line.split(": ", 1) for line in head.decode().split("\r\n")), content)

    def _answer(self, headers: dict[str, str], content: bytes) -> None:
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def gate(repository: Repository, tmp_path: Path) -> Iterator[Gate]:
    """The repository behind a password."""
    bare = tmp_path / "served" / "private.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(repository.folder), str(bare))
    with Gate(tmp_path / "served") as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server
        server.shutdown()
        serving.join()


def secret(folder: Path, **values: str) -> Path:
    """A mounted Secret."""
    folder.mkdir()
    for name, value in values.items():
        (folder / name.replace("ssh_", "ssh-")).write_text(value)
    return folder


def fetch_code(gate: Gate, path: str, tmp_path: Path, credentials: Path) -> tuple[int, str]:
    """The command as the init container runs it: its status and all that it printed."""
    url, code = f"http://127.0.0.1:{gate.server_port}{path}", str(tmp_path / "code")
    done = subprocess.run(
        [sys.executable, "-m", "rankzero.cli", "fetch-code", url, "v1", code, "--credentials", str(credentials)],
        env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def contents(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_private_repository_is_fetched_with_the_secret_and_keeps_it(
    gate: Gate, repository: Repository, tmp_path: Path
) -> None:
    credentials = secret(tmp_path / "secret", username="robot", password=TOKEN + "\n")
    status, said = fetch_code(gate, "/private.git", tmp_path, credentials)
    assert (status, repository.first in said) == (0, True), said
    assert TOKEN not in said
    assert TOKEN.encode() not in contents(tmp_path / "code")


def test_a_wrong_password_is_said_and_not_shown(gate: Gate, tmp_path: Path) -> None:
    credentials = secret(tmp_path / "secret", username="robot", password="wrong-" + TOKEN)
    status, said = fetch_code(gate, "/private.git", tmp_path, credentials)
    assert status == contract.EXIT_PREFLIGHT
    assert "code.git.secret" in said
    assert TOKEN not in said


def test_a_redirect_to_another_host_does_not_get_the_password(gate: Gate, tmp_path: Path) -> None:
    credentials = secret(tmp_path / "secret", username="robot", password=TOKEN)
    status, _ = fetch_code(gate, "/away/private.git", tmp_path, credentials)
    assert status == contract.EXIT_PREFLIGHT
    assert gate.seen == {""}


@pytest.mark.parametrize(
    ("values", "key"), [({"username": "robot"}, "password"), ({"ssh_privatekey": "x"}, "known_hosts"), ({}, "username")]
)
def test_a_secret_that_lacks_a_key_is_refused_with_its_name(values: dict[str, str], key: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"no readable key {key}"):
        fetch.access("https://example.com/a.git", secret(tmp_path / "secret", **values), tmp_path)


def test_ssh_uses_the_key_and_knows_the_host(tmp_path: Path) -> None:
    """ssh itself is not run here."""
    credentials = secret(tmp_path / "secret", ssh_privatekey="KEY", known_hosts="example.com ssh-ed25519 AAAA")
    environment = fetch.access("git@example.com:a.git", credentials, tmp_path)
    command = environment["GIT_SSH_COMMAND"]
    assert f"UserKnownHostsFile={credentials}/known_hosts" in command
    assert "StrictHostKeyChecking=yes" in command
    assert "ConnectTimeout=" in command
    assert "ServerAliveInterval=" in command
    assert (tmp_path / "key").read_text() == "KEY\n"
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
