"""The trainer image as pods run it: one user, a read-only root file system, nothing fetched or compiled at the start.

The image of this tree is built first, in seconds if nothing changed.
"""

from __future__ import annotations

import http.server
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from scripts import command
from scripts.image import engine as engines
from scripts.image import host_network
from scripts.image.base import production
from scripts.image.build import Choices, build_image
from scripts.image.context import locked_version, stage_trainer, staging
from scripts.image.engine import Build, Engine, build_command
from scripts.image.reference import project_version
from scripts.stages import Stages

pytestmark = [pytest.mark.image, pytest.mark.timeout(1800)]

IMPORT_SECONDS = 15
"""Bound for `import torch`: 1.5 s measured on 2 busy cores (3.5 s without bytecode); a cold disk takes the rest."""

ALL_REDUCE = """
import os, rankzero, torch
from torch import distributed
distributed.init_process_group("gloo")
rank = distributed.get_rank()
total = torch.tensor([10.0 ** rank])
distributed.all_reduce(total)
# One write for a whole line: the image runs Python unbuffered, where print writes text and line end separately.
os.write(1, f"rank {rank} of {distributed.get_world_size()}: {total.item():g}\\n".encode())
distributed.destroy_process_group()
"""

MODULES_WITHOUT_BYTECODE = """
import importlib.util, pathlib, sys, torch, rankzero
for package in (torch, rankzero):
    modules = list(pathlib.Path(package.__file__).parent.rglob("*.py"))
    assert len(modules) > 10, modules
    for module in modules:
        if not pathlib.Path(importlib.util.cache_from_source(str(module))).exists():
            try:
                compile(module.read_bytes(), str(module), "exec")
            except SyntaxError:
                continue
            print(module)
"""


MARK = "mark-of-the-build-machine"
FILES_WITH = """
import os, pathlib, sys
mark = sys.argv[1].encode()
for folder, below, names in os.walk("/", onerror=print):
    # Not into what the engine mounts.
    below[:] = [name for name in below if os.lstat(os.path.join(folder, name)).st_dev == os.stat("/").st_dev]
    for path in (pathlib.Path(folder, name) for name in names):
        if path.is_file() and not path.is_symlink() and mark in path.read_bytes():
            print(path)
"""


@pytest.fixture(scope="module")
def engine() -> Engine:
    found = engines.find(os.environ.get("ENGINE", ""))
    if found.name == "buildah":
        pytest.skip("buildah builds images and does not run them: set ENGINE to podman or docker")
    return found


@pytest.fixture(scope="module")
def image(engine: Engine) -> str:
    """Reference of the image under test."""
    base = os.environ.get("BASE") or "auto"
    return build_image(Choices(engine=engine.name, base=base), os.environ, Stages()).reference


Run = Callable[..., str]


@pytest.fixture
def run(engine: Engine, image: str) -> Run:
    """Run a program in a container like a pod's: read-only root, its own /tmp, no network to fetch anything from."""

    def run(*words: str, entrypoint: str = "python", user: str = "") -> str:
        command = [engine.name, "run", "--rm", "--read-only", "--tmpfs", "/tmp", "--network", "none"]  # noqa: S108
        if engine.name == "podman":
            command.append("--read-only-tmpfs=false")
        command += ["--user", user] if user else []
        done = subprocess.run(
            [*command, "--entrypoint", entrypoint, image, *words],
            env={**os.environ, **engines.environment(engine.name)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def config(engine: Engine, image: str) -> dict[str, object]:
    """The image's own settings, as the engine stores them."""
    settings: dict[str, object] = json.loads(engine.run([engine.name, "image", "inspect", image]))[0]["Config"]
    return settings


def test_the_user_is_1000_by_number_and_has_a_name(run: Run, config: dict[str, object]) -> None:
    assert config["User"] == "1000:1000"
    user = "import os, pwd; print(os.getuid(), os.getgid(), bool(pwd.getpwuid(1000).pw_name), os.environ['HOME'])"
    assert run("-c", user).split() == ["1000", "1000", "True", "/tmp"]  # noqa: S108


def test_the_entrypoint_is_rankzero_and_it_answers(run: Run, config: dict[str, object]) -> None:
    assert config["Entrypoint"] == ["rankzero"]
    assert "launch" in run("--help", entrypoint="rankzero")


def test_the_bases_torch_is_the_only_torch_and_has_the_locked_version(run: Run) -> None:
    found = run("-c", "import torch, rankzero; print(torch.__version__, torch.__file__, rankzero.__file__)").split()
    assert found[0].partition("+")[0] == locked_version("torch")
    assert not found[1].startswith("/opt/rankzero/")
    assert found[2].startswith("/opt/rankzero/venv/")


def test_a_pod_compiles_nothing_at_its_start(run: Run) -> None:
    assert run("-c", MODULES_WITHOUT_BYTECODE) == ""


def test_our_bytecode_does_not_depend_on_file_times(run: Run) -> None:
    flags = "import rankzero; print(int.from_bytes(open(rankzero.__cached__, 'rb').read()[4:8], 'little'))"
    assert run("-c", flags) == "1\n"


def test_torch_is_imported_in_seconds(run: Run) -> None:
    measure = "import time; a = time.monotonic(); import torch; print(time.monotonic() - a)"
    assert float(run("-c", measure)) < IMPORT_SECONDS


def test_the_root_file_system_is_not_needed_for_writing(run: Run) -> None:
    """Checkpoints and compiled graphs go to /tmp here, by an arbitrary user as some clusters assign it."""
    work = """
import errno, pathlib, torch
try:
    pathlib.Path("/opt/rankzero/note").write_text("")
except OSError as error:
    assert error.errno in (errno.EROFS, errno.EACCES), error
else:
    raise SystemExit("the root file system takes writes")
double = torch.compile(lambda x: 2 * x, backend="eager")
torch.save(double(torch.ones(2)), pathlib.Path.home() / "state.pt")
print(torch.load(pathlib.Path.home() / "state.pt").tolist())
"""
    assert run("-c", work) == "[2.0, 2.0]\n"
    assert run("-c", work, user="23456:0") == "[2.0, 2.0]\n"


def test_two_processes_all_reduce_over_gloo_and_see_our_package(run: Run) -> None:
    # torchrun takes the script as a file; the shell writes it, since nothing may be mounted or kept.
    start = "GLOO_SOCKET_IFNAME=lo exec torchrun --standalone --nproc-per-node=2 /tmp/reduce.py"
    script = f'printf %s "$1" > /tmp/reduce.py && {start}'
    lines = run("-c", script, "sh", ALL_REDUCE, entrypoint="sh").splitlines()
    assert sorted(lines) == ["rank 0 of 2: 11", "rank 1 of 2: 11"]


def test_the_examples_are_there_for_everyone_to_read(run: Run) -> None:
    compiled = "compile(open('/opt/rankzero/examples/mnist.py').read(), 'mnist.py', 'exec'); print('ok')"
    assert run("-c", compiled) == "ok\n"


def test_the_labels_say_what_the_image_was_made_from(config: dict[str, object], image: str) -> None:
    labels = config["Labels"]
    assert isinstance(labels, dict)
    prefix = "org.opencontainers.image"
    assert labels[f"{prefix}.version"] == project_version()
    assert len(labels[f"{prefix}.revision"]) == 40
    assert f"-g{labels[f'{prefix}.revision'][:12]}" in image
    assert labels[f"{prefix}.base.digest"].startswith("sha256:")
    name = labels[f"{prefix}.base.name"]
    assert name == production() or ":" in name.rpartition("/")[2]


class MarkedIndex(http.server.BaseHTTPRequestHandler):
    """A package index on this machine that has no packages."""

    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        """Keep the test's output free of requests."""


@pytest.fixture
def marked_index() -> Iterator[str]:
    """Address of the index, with the mark in it."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), MarkedIndex) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/{MARK}/simple"
        server.shutdown()


@pytest.fixture
def marked_build(engine: Engine, image: str, marked_index: str, tmp_path: Path) -> Iterator[str]:
    """Reference of an image that was built anew where index, proxy settings and certificates carry :data:`MARK`."""
    direct = f"{MARK}.invalid,127.0.0.1,{os.environ.get('no_proxy', '')}"
    environ = {
        **os.environ,
        "PIP_EXTRA_INDEX_URL": marked_index,
        "no_proxy": direct,
        "NO_PROXY": direct,
    }
    if trusted := host_network.ca_bundle(os.environ):
        certificates = tmp_path / "certificates.pem"
        certificates.write_text(f"# {MARK}\n{trusted.read_text(encoding='utf-8')}", encoding="utf-8")
        environ["SSL_CERT_FILE"] = str(certificates)
    (described,) = json.loads(engine.run([engine.name, "image", "inspect", image]))
    base = described["Config"]["Labels"]["org.opencontainers.image.base.name"]
    reference = "localhost/rankzero/built-on-a-marked-machine:1"
    with staging() as context, staging() as private:
        stage_trainer(context)
        build = Build(
            context=context,
            tag=reference,
            args={"BASE_IMAGE": base},
            secrets=host_network.secrets(environ, private),
            from_environment=host_network.proxies(environ),
            cached=False,
        )
        command.run(build_command(engine.name, build), env={**environ, **engines.environment(engine.name)})
    yield reference
    engine.run([engine.name, "rmi", reference])


def test_nothing_of_the_build_machine_stays_in_the_image(marked_build: str, engine: Engine) -> None:
    assert any(MARK in path for path in MarkedIndex.asked), "the build has used the marked index"
    run = [engine.name, "run", "--rm", "--network", "none", "--user", "0", "--entrypoint", "python", marked_build]
    assert engine.run([*run, "-c", FILES_WITH, MARK]) == ""
    for words in (["history", "--no-trunc", marked_build], ["image", "inspect", marked_build]):
        assert MARK not in engine.run([engine.name, *words])
