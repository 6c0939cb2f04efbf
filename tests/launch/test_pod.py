"""What one pod checks and knows by itself: identity, preflight, interface, failure records."""

from __future__ import annotations

import asyncio
import json
import os
import resource
from pathlib import Path

import pytest

from rankzero import contract
from rankzero.config import LaunchConfig, RunConfig
from rankzero.errors import ConfigError, PreflightError
from rankzero.launch import preflight
from rankzero.launch.identity import Identity, from_environment
from rankzero.launch.interface import interface_of, source_address
from rankzero.launch.logs import Logs
from rankzero.launch.processes import inherit_orphans, kill_strays, living_descendants
from rankzero.launch.protocol import WorkerFailed
from rankzero.launch.starters import start_plainly
from rankzero.launch.workers import WorkerGroup
from tests.launch.pods import SCRIPT
from tests.waiting import PATIENCE


def identity(tmp_path: Path) -> Identity:
    return from_environment({contract.ENV_STATE_ROOT: str(tmp_path)}, nodes=1)


def test_one_node_outside_kubernetes_needs_no_variables() -> None:
    assert from_environment({}, nodes=1).node_rank == 0


@pytest.mark.parametrize("value", ["", "2", "-1", "x", "1.0"])
def test_a_node_rank_that_cannot_be_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="RANKZERO_NODE_RANK"):
        from_environment({contract.ENV_NODE_RANK: value, contract.ENV_POD_IP: "10.0.0.1"}, nodes=2)


@pytest.mark.parametrize(("first", "index", "rank"), [("", "1", 1), ("0", "2", 2), ("1", "0", 1), ("1", "1", 2)])
def test_the_node_rank_is_the_index_after_the_first_of_its_template(first: str, index: str, rank: int) -> None:
    """The workers of a PyTorchJob count from 0, after its master."""
    environ = {contract.ENV_FIRST_NODE_RANK: first, contract.ENV_NODE_RANK: index, contract.ENV_POD_IP: "10.0.0.1"}
    assert from_environment(environ, nodes=3).node_rank == rank


@pytest.mark.parametrize(("first", "index"), [("1", "2"), ("x", "0"), ("-1", "1")])
def test_a_first_node_rank_that_leads_out_of_the_group_is_refused(first: str, index: str) -> None:
    environ = {contract.ENV_FIRST_NODE_RANK: first, contract.ENV_NODE_RANK: index, contract.ENV_POD_IP: "10.0.0.1"}
    with pytest.raises(ConfigError, match=f"RANKZERO_NODE_RANK is '{index}' after RANKZERO_FIRST_NODE_RANK '{first}'"):
        from_environment(environ, nodes=3)


def test_several_nodes_need_an_address_that_the_others_reach() -> None:
    with pytest.raises(ConfigError, match="RANKZERO_POD_IP is not set and the run has 2 nodes"):
        from_environment({contract.ENV_NODE_RANK: "0"}, nodes=2)


@pytest.mark.parametrize("value", ["..", "a/b", "/etc"])
def test_a_run_id_cannot_leave_the_volume(value: str) -> None:
    with pytest.raises(ConfigError, match="RANKZERO_RUN_ID"):
        from_environment({contract.ENV_RUN_ID: value}, nodes=1)


def test_outside_kubernetes_nobody_counts_the_grace() -> None:
    assert from_environment({}, nodes=1).grace_seconds is None


@pytest.mark.parametrize("value", ["60s", "-1", "1.5"])
def test_a_grace_that_is_no_whole_number_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="RANKZERO_GRACE_SECONDS is"):
        from_environment({contract.ENV_GRACE_SECONDS: value}, nodes=1)


def test_a_missing_script_is_named(tmp_path: Path) -> None:
    config = RunConfig(launch=LaunchConfig(script="/no/such/script.py"))
    with pytest.raises(ConfigError, match=r"launch.script: /no/such/script.py is not a readable file"):
        preflight.check(config, identity(tmp_path))


def test_a_volume_that_is_a_file_is_named(tmp_path: Path) -> None:
    root = tmp_path / "volume"
    root.write_text("")
    with pytest.raises(PreflightError, match="cannot write to the checkpoint volume"):
        preflight.check(RunConfig(launch=LaunchConfig(script=str(SCRIPT))), identity(root))


def test_a_small_shared_memory_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known failure A21."""
    monkeypatch.setattr(preflight, "SHM", "/dev")  # not a mock of statvfs: a real, small file system
    monkeypatch.setattr(preflight, "DEFAULT_SHM", 2**62)
    assert "set shm.size" in preflight.check(RunConfig(launch=LaunchConfig(script=str(SCRIPT))), identity(tmp_path))[0]


def test_few_open_files_are_a_warning_that_names_who_grants_more(tmp_path: Path) -> None:
    """Known failure B20: containerd 2 leaves systemd's 1024."""
    config = RunConfig(launch=LaunchConfig(script=str(SCRIPT)))
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))  # login shells have 1024 of these
        assert "LimitNOFILE" not in str(preflight.check(config, identity(tmp_path)))
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
        assert "may open only 1024 files" in preflight.check(config, identity(tmp_path))[-1]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_interface_is_the_one_that_owns_the_address() -> None:
    """Known failure A18."""
    assert interface_of("127.0.0.1") == "lo"
    assert interface_of("192.0.2.1") == ""
    assert source_address("127.0.0.1") == "127.0.0.1"


@pytest.mark.skipif(not Path("/proc/net/if_inet6").exists(), reason="this kernel has no IPv6")
def test_the_interface_of_an_ipv6_address_is_found() -> None:
    assert interface_of("::1") == "lo"


def run_worker(code: str, tmp_path: Path) -> tuple[int, str, str]:
    """Run one worker with ``code``; returns exit code, signal and error of its failure."""

    async def scenario() -> tuple[int, str, str]:
        environment = {
            **os.environ, "RANK": "0", "LOCAL_RANK": "0", "TORCHELASTIC_ERROR_FILE": str(tmp_path / "error.json"),
        }  # fmt: skip
        logs = Logs(LaunchConfig(script="-c"), tmp_path, pytest.fail)
        group = await WorkerGroup.start(start_plainly, ["-c", code], [environment], 1, 0, logs)
        failure = await group.wait()
        return (failure.exit_code, failure.signal, failure.error) if failure else (0, "", "")

    return asyncio.run(scenario())


def test_an_end_by_a_signal_is_named_and_numbered_as_the_shell_does(tmp_path: Path) -> None:
    assert run_worker("import os; os.kill(os.getpid(), 9)", tmp_path) == (137, "SIGKILL", "")


def test_the_last_error_line_is_the_reason(tmp_path: Path) -> None:
    assert run_worker("raise ValueError('bad batch')", tmp_path) == (1, "", "ValueError: bad batch")


def test_the_error_file_of_torchs_record_decorator_goes_first(tmp_path: Path) -> None:
    content = json.dumps({"message": {"message": "OutOfMemoryError: 3 GiB", "extraInfo": {}}})
    code = f"import os; open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write({content!r}); raise SystemExit(3)"
    assert run_worker(code, tmp_path) == (3, "", "OutOfMemoryError: 3 GiB")


def test_an_empty_or_broken_error_file_does_not_hide_the_failure(tmp_path: Path) -> None:
    (tmp_path / "error.json").write_text("{")
    assert run_worker("raise SystemExit(4)", tmp_path) == (4, "", "")


def test_output_that_is_not_text_or_has_no_line_ends_does_not_stop_the_launcher(tmp_path: Path) -> None:
    code = "import sys; sys.stdout.buffer.write(b'\\xff' * 100_000); raise SystemExit(5)"
    assert run_worker(code, tmp_path)[0] == 5


def test_an_end_by_a_realtime_signal_is_a_failure_like_others(tmp_path: Path) -> None:
    assert run_worker("import os; os.kill(os.getpid(), 40)", tmp_path) == (168, "signal 40", "")


def test_a_process_that_left_the_group_and_holds_the_pipe_hides_nothing(tmp_path: Path) -> None:
    """A tool that turns itself into a daemon keeps the standard output it inherited."""
    code = "import subprocess, sys; subprocess.Popen(['sleep', '1000'], start_new_session=True); raise SystemExit(6)"

    assert first_failure(code, 1, tmp_path).exit_code == 6


def test_the_failure_that_came_first_is_the_one_that_is_told(tmp_path: Path) -> None:
    """Rank 1 fails, rank 0 follows, and rank 1 is the slower one to be read to its end."""
    flag = tmp_path / "failed"
    first = (
        "import os, pathlib, subprocess; subprocess.Popen(['sleep', '1000'], start_new_session=True); "
        f"new = pathlib.Path({str(flag)!r} + '.new'); new.write_text(str(os.getpid())); new.rename({str(flag)!r}); "
        "os._exit(5)"
    )
    follower = (
        f"import os, pathlib, time\nflag = pathlib.Path({str(flag)!r})\nwhile not flag.exists(): time.sleep(0.01)\n"
        "stat = pathlib.Path('/proc', flag.read_text(), 'stat')\n"
        "while stat.exists() and ') Z' not in stat.read_text(): time.sleep(0.01)\n"
        "time.sleep(0.3); os._exit(1)"
    )
    code = f"import os\nexec({first!r} if os.environ['RANK'] == '1' else {follower!r})"
    assert first_failure(code, 2, tmp_path).rank == 1


def first_failure(code: str, ranks: int, tmp_path: Path) -> WorkerFailed:
    """Run ``code`` on some ranks to the first failure and stop them; nothing of theirs may be left."""
    others = set(living_descendants(os.getpid(), set()))  # of other tests in this process

    async def scenario() -> WorkerFailed | None:
        inherit_orphans()
        environments = [
            {**os.environ, "RANK": f"{r}", "LOCAL_RANK": f"{r}", "TORCHELASTIC_ERROR_FILE": str(tmp_path / f"e{r}")}
            for r in range(ranks)
        ]
        logs = Logs(LaunchConfig(script="-c"), tmp_path, pytest.fail)
        group = await WorkerGroup.start(start_plainly, ["-c", code], environments, 1, 0, logs)
        async with asyncio.timeout(PATIENCE):
            failure = await group.wait()
            await group.stop(1.0)
        assert await kill_strays(others) == []
        return failure

    failure = asyncio.run(scenario())
    assert failure is not None
    assert living_descendants(os.getpid(), others) == []
    return failure
