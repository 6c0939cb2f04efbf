"""The warm spare: what comes out of a fork must be what a fresh interpreter would have been."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from rankzero.config import LaunchConfig
from rankzero.launch.environment import common_environment
from rankzero.launch.processes import kill_strays, living_descendants
from rankzero.launch.spare import Spare, SpareError
from rankzero.launch.starters import Started, Starter, WarmStarter, start_plainly
from rankzero.launch.warm import Warmth, is_installed
from tests.waiting import PATIENCE, until

T = TypeVar("T")
PROBE = str(Path(__file__).with_name("probe.py"))


def with_spare(
    use: Callable[[Spare], Awaitable[T]], *, preload: Sequence[str] = (), path: str = "", say: Any = print
) -> T:
    """Run ``use`` with a spare that has imported ``preload``."""

    async def scenario() -> T:
        spare = await Spare.start(
            {**os.environ, "PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])}
        )
        try:
            await spare.preload(preload, say)
            return await use(spare)
        finally:
            await spare.close()

    return asyncio.run(scenario())


async def result(started: Started) -> tuple[int, str]:
    """Exit status and output of a worker."""
    output = await started.output.read()
    return await started.end, output.decode()


async def run(starter: Starter, script: Sequence[str], **environment: str) -> tuple[int, str]:
    return await result(await starter(script, {**os.environ, **environment}))


def both(script: Sequence[str], **environment: str) -> tuple[tuple[int, str], tuple[int, str]]:
    """The same script started plainly and forked."""

    async def use(spare: Spare) -> tuple[tuple[int, str], tuple[int, str]]:
        plain = await run(start_plainly, script, **environment)
        return plain, await run(WarmStarter(spare, pytest.fail), script, **environment)

    return with_spare(use, preload=["json"])


def children(pid: int) -> list[int]:
    """Living children of a process."""
    return [child for child in living_descendants(pid, set()) if f"PPid:\t{pid}\n" in _status(child)]


def _status(pid: int) -> str:
    path = Path(f"/proc/{pid}/status")
    return path.read_text() if path.exists() else ""


def script(tmp_path: Path, code: str) -> str:
    path = tmp_path / "script.py"
    path.write_text(code)
    return str(path)


def test_a_forked_worker_sees_what_a_fresh_interpreter_sees() -> None:
    plain, forked = both([PROBE, "--steps", "3"], RANK="3", ODD="a\nb=c")
    assert json.loads(forked[1]) == json.loads(plain[1])
    assert json.loads(forked[1])["environment"]["ODD"] == "a\nb=c"


@pytest.mark.parametrize(
    "code",
    [
        "raise SystemExit(7)",
        "raise SystemExit",
        "raise SystemExit('reason')",
        "import os; os._exit(9)",
        "import os; os.kill(os.getpid(), 9)",
        "import atexit; atexit.register(print, 'bye')",
        "def f(): raise ValueError('deep')\nf()",
        "syntax error",
        "import sys; print('out'); print('err', file=sys.stderr)",
        "from __future__ import annotations\nx: Undefined = 1\nprint(__annotations__)",
        "import pickle\nclass A: pass\nprint(pickle.loads(pickle.dumps(A())).__class__)",
    ],
)
def test_ends_and_output_are_those_of_a_fresh_interpreter(tmp_path: Path, code: str) -> None:
    plain, forked = both([script(tmp_path, code)])
    assert forked == plain


def test_modules_in_the_working_directory_are_the_workers_and_not_the_spares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the folder with the user's code, and holds what it likes, also under a library's name."""
    (tmp_path / "fractions.py").write_text("raise SystemExit('the user's own')")
    monkeypatch.chdir(tmp_path)

    async def use(spare: Spare) -> tuple[int, str]:
        return await run(WarmStarter(spare, pytest.fail), [script(tmp_path, "import os; print(os.getcwd())")])

    assert with_spare(use, preload=["fractions"], say=pytest.fail) == (0, f"{tmp_path}\n")


def test_a_missing_script_is_an_error_of_the_worker_not_of_the_spare(tmp_path: Path) -> None:
    async def use(spare: Spare) -> list[tuple[int, str]]:
        starter = WarmStarter(spare, pytest.fail)
        return [await run(starter, [str(tmp_path / "none.py")]), await run(starter, [PROBE])]

    missing, after = with_spare(use)
    assert missing[0] != 0
    assert "none.py" in missing[1]
    assert after[0] == 0


def test_two_workers_do_not_draw_the_same_random_numbers(tmp_path: Path) -> None:
    code = script(tmp_path, "import random; print(random.random())")

    async def use(spare: Spare) -> set[str]:
        starter = WarmStarter(spare, pytest.fail)
        return {(await run(starter, [code]))[1] for _ in range(3)}

    assert len(with_spare(use, preload=["random"])) == 3


def test_an_imported_module_is_not_imported_again(tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text("print('imported')\n")
    code = script(tmp_path, "import counted; print('worker')")

    async def use(spare: Spare) -> str:
        return (await run(WarmStarter(spare, pytest.fail), [code]))[1]

    assert with_spare(use, preload=["counted"], path=str(tmp_path)) == "worker\n"


def test_a_spare_of_a_pod_with_one_process_can_be_forked_after_torch_and_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """On several cores, where numerical libraries start threads if they may; torch still has all of its own."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    environment = common_environment(os.environ, LaunchConfig("train.py", procs_per_node=1))

    async def scenario() -> None:
        spare = await Spare.start(environment)
        try:
            await spare.preload(["numpy", "torch"], pytest.fail)
        finally:
            await spare.close()

    asyncio.run(scenario())
    assert "OMP_NUM_THREADS" not in environment


def test_a_module_that_starts_a_thread_makes_the_launcher_start_plainly_and_say_so(tmp_path: Path) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    said: list[str] = []

    async def use(spare: Spare) -> tuple[int, str]:
        with pytest.raises(SpareError, match="an imported module has started 1 threads; OMP_NUM_THREADS=1 keeps"):
            await spare.preload(["threaded"], pytest.fail)
        return await run(WarmStarter(spare, said.append), [script(tmp_path, "print('fine')")])

    assert with_spare(use, path=str(tmp_path)) == (0, "fine\n")
    assert said == ["the warm spare cannot be used: an imported module has started 1 threads; starting plainly"]


def test_thousands_of_modules_and_a_huge_environment_fit_into_a_request(tmp_path: Path) -> None:
    code = script(tmp_path, "import os; print(len(os.environ['HUGE']))")
    said: list[str] = []

    async def use(spare: Spare) -> tuple[int, str]:
        await spare.preload([f"no_such_module_{number:04}" for number in range(1000)], said.append)
        return await run(WarmStarter(spare, pytest.fail), [code], HUGE="x" * 100_000)

    assert with_spare(use) == (0, "100000\n")
    assert len(said) == 20


def test_a_spare_that_answers_too_late_leaves_no_second_worker_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankzero.launch.spare.ANSWER_WITHIN", 3)
    first, second = tmp_path / "first", tmp_path / "second"
    code = script(
        tmp_path, "import pathlib, sys, threading\npathlib.Path(sys.argv[1]).touch(); threading.Event().wait()"
    )
    said: list[str] = []

    async def use(spare: Spare) -> None:
        os.kill(spare.pid, signal.SIGSTOP)
        plain = await WarmStarter(spare, said.append)([code, str(first)], os.environ)
        os.kill(spare.pid, signal.SIGCONT)
        forked = await WarmStarter(spare, pytest.fail)([code, str(second)], os.environ)
        command = Path(f"/proc/{forked.pid}/status").read_text()
        assert f"PPid:\t{spare.pid}" in command
        until(lambda: children(spare.pid) == [forked.pid], what="only the worker that was asked for")
        for pid in (plain.pid, forked.pid):
            os.kill(pid, signal.SIGKILL)
        assert await plain.end == await forked.end == -9

    with_spare(use)
    assert said == ["the warm spare cannot be used: it did not answer within 3 s; starting plainly"]


def test_a_signal_to_the_launchers_process_group_does_not_reach_the_workers(tmp_path: Path) -> None:
    code = script(tmp_path, "import threading; print('up', flush=True); threading.Event().wait(1)")

    async def use(spare: Spare) -> int:
        started = await WarmStarter(spare, pytest.fail)([code], os.environ)
        assert await started.output.readline() == b"up\n"
        assert os.getpgid(spare.pid) != os.getpgid(0)
        os.kill(spare.pid, signal.SIGTERM)  # and the spare itself leaves the decision to the launcher
        return await started.end

    assert with_spare(use) == 0


def test_a_worker_that_is_stopped_in_the_moment_of_its_fork_ends_by_that(tmp_path: Path) -> None:
    """A SIGTERM that is lost there costs launch.stopTimeout at the end of the attempt."""
    code = script(tmp_path, "import threading; threading.Event().wait()")

    async def use(spare: Spare) -> list[int]:
        ends = []
        for _ in range(20):
            started = await WarmStarter(spare, pytest.fail)([code], os.environ)
            os.kill(started.pid, signal.SIGTERM)
            async with asyncio.timeout(PATIENCE):
                ends.append(await started.end)
        return ends

    assert with_spare(use) == [-signal.SIGTERM] * 20


def test_a_module_that_cannot_be_imported_is_said_and_left_to_the_workers(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise SystemExit('do not end the spare')\n")
    said: list[str] = []

    async def use(spare: Spare) -> tuple[int, str]:
        return await run(WarmStarter(spare, pytest.fail), [script(tmp_path, "print('fine')")])

    done = with_spare(use, preload=["broken", "no.such.module"], path=str(tmp_path), say=said.append)
    assert done == (0, "fine\n")
    assert [line.split(":")[0] for line in said] == [
        "the warm spare could not import broken",
        "the warm spare could not import no.such.module",
    ]


def test_workers_end_with_their_spare_and_that_is_known(tmp_path: Path) -> None:
    code = script(tmp_path, "import threading; print('up', flush=True); threading.Event().wait()")

    async def use(spare: Spare) -> tuple[int, bool]:
        started = await WarmStarter(spare, pytest.fail)([code], os.environ)
        assert await started.output.readline() == b"up\n"
        os.kill(spare.pid, signal.SIGKILL)
        status = await asyncio.wait_for(started.end, PATIENCE)
        assert await asyncio.wait_for(started.output.read(), PATIENCE) == b""
        with pytest.raises(SpareError):
            await spare.fork([code], os.environ, 1)
        return status, spare.alive

    assert with_spare(use) == (-9, False)


def test_a_dead_spare_is_replaced_for_the_next_attempt(tmp_path: Path) -> None:
    async def scenario() -> tuple[int, str]:
        warmth = Warmth(os.environ, [], PROBE, pytest.fail)
        warmth._wanted = ["json"]  # the baseline would import torch, which has nothing to do with this
        try:
            await warmth.open()
            await warmth.starter()
            first = warmth.pids
            os.kill(next(iter(first)), signal.SIGKILL)
            assert warmth._spare is not None
            await asyncio.wait({warmth._spare._reader}, timeout=PATIENCE)
            starter, _ = await warmth.starter()
            assert warmth.pids
            assert warmth.pids != first
            return await run(starter, [script(tmp_path, "print('fine')")])
        finally:
            await warmth.close()

    assert asyncio.run(scenario()) == (0, "fine\n")


def test_a_successor_that_died_is_forgotten() -> None:
    """Or its process id, which the kernel gives to others, would stay among those that are not strays."""

    async def scenario() -> tuple[int, set[int]]:
        warmth = Warmth(os.environ, [], PROBE, pytest.fail)
        warmth._wanted = ["json"]
        try:
            await warmth.open()
            await warmth.starter()
            warmth._successor = dead = await warmth._new_spare()
            assert dead is not None
            os.kill(dead.pid, signal.SIGKILL)
            await asyncio.wait({dead._reader}, timeout=PATIENCE)
            await warmth.starter()
            return dead.pid, warmth.pids
        finally:
            await warmth.close()

    dead, known = asyncio.run(scenario())
    assert len(known) == 1
    assert dead not in known


def test_a_spare_whose_imports_hang_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rankzero.launch.warm.IMPORTED_WITHIN", 0.3)
    (tmp_path / "hanging.py").write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'go')!r}).open().read()")
    os.mkfifo(tmp_path / "go")
    said: list[str] = []

    async def scenario() -> tuple[int, str]:
        warmth = Warmth({**os.environ, "PYTHONPATH": str(tmp_path)}, [], PROBE, said.append)
        warmth._wanted = ["hanging"]
        try:
            await warmth.open()
            async with asyncio.timeout(PATIENCE):
                starter, _ = await warmth.starter()
            return await run(starter, [script(tmp_path, "print('fine')")])
        finally:
            await warmth.close()

    assert asyncio.run(scenario()) == (0, "fine\n")
    assert said == ["the warm spare has not imported all within 0.3 s; workers are started plainly"]


def test_a_spare_that_is_still_importing_is_known_and_not_taken_for_a_stray(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'go')!r}).open().read()")
    os.mkfifo(tmp_path / "go")

    async def scenario() -> tuple[int, str]:
        warmth = Warmth({**os.environ, "PYTHONPATH": str(tmp_path)}, [], PROBE, pytest.fail)
        warmth._wanted = ["slow"]
        others = set(living_descendants(os.getpid(), set()))
        try:
            await warmth.open()
            await asyncio.to_thread(until, lambda: warmth.pids, what="the spare")
            assert await kill_strays(others | warmth.pids) == []
            await asyncio.to_thread((tmp_path / "go").write_text, "")
            starter, _ = await warmth.starter()
            return await run(starter, [script(tmp_path, "import sys; print('slow' in sys.modules)")])
        finally:
            await warmth.close()

    assert asyncio.run(scenario()) == (0, "True\n")


def test_only_installed_packages_are_learnt() -> None:
    assert is_installed("torch.nn")
    assert is_installed("yaml")
    assert not is_installed("tests.launch")
    assert not is_installed("json")
    assert not is_installed("no_such_module")
    assert not is_installed("__main__")


def test_a_file_of_the_users_that_hides_an_installed_package_is_not_imported_beforehand(tmp_path: Path) -> None:
    (tmp_path / "yaml.py").write_text("")
    assert is_installed("yaml", [str(tmp_path / "elsewhere")])
    assert not is_installed("yaml", [str(tmp_path)])


def test_what_an_attempt_imported_is_there_in_the_next_and_running_workers_are_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rankzero.launch.warm.LEARN_AFTER", 0.5)
    code = script(
        tmp_path,
        "import sys; known = 'yaml' in sys.modules; import yaml, threading; print(known, flush=True)\n"
        "try: import yaml.no_such_part\nexcept ImportError: pass\n"
        "threading.Event().wait(float(sys.argv[1]))",
    )

    async def scenario() -> list[str]:
        warmth = Warmth(os.environ, [], code, pytest.fail)
        warmth._wanted = ["json"]
        try:
            await warmth.open()
            starter, extra = await warmth.starter()
            first = await starter([code, "3"], {**os.environ, **extra})
            async with asyncio.timeout(PATIENCE):
                while len(warmth.pids) < 2 or warmth._successor is None or not warmth._successor.memory:
                    await asyncio.sleep(0.02)
            assert await first.end == 0
            starter, extra = await warmth.starter()
            second = await starter([code, "0"], {**os.environ, **extra})
            return [(await one.output.read()).decode().strip() for one in (first, second)]
        finally:
            await warmth.close()

    assert asyncio.run(scenario()) == ["False", "True"]
