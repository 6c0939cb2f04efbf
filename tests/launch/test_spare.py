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

from rankzero.launch.spare import Spare, SpareError
from rankzero.launch.starters import Started, Starter, WarmStarter, start_plainly
from rankzero.launch.warm import Warmth, is_installed

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


def test_a_module_that_starts_a_thread_makes_the_launcher_start_plainly_and_say_so(tmp_path: Path) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    said: list[str] = []

    async def use(spare: Spare) -> tuple[int, str]:
        return await run(WarmStarter(spare, said.append), [script(tmp_path, "print('fine')")])

    assert with_spare(use, preload=["threaded"], path=str(tmp_path)) == (0, "fine\n")
    assert said == ["the warm spare cannot be used: an imported module has started 1 threads; starting plainly"]


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
        status = await asyncio.wait_for(started.end, 10)
        assert await asyncio.wait_for(started.output.read(), 10) == b""
        with pytest.raises(SpareError):
            await spare.fork([code], os.environ, 1)
        return status, spare.alive

    assert with_spare(use) == (-9, False)


def test_a_dead_spare_is_replaced_for_the_next_attempt(tmp_path: Path) -> None:
    async def scenario() -> tuple[int, str]:
        warmth = Warmth(os.environ, [], pytest.fail)
        warmth._wanted = ["json"]  # the baseline would import torch, which has nothing to do with this
        try:
            await warmth.open()
            first = warmth.pids
            os.kill(next(iter(first)), signal.SIGKILL)
            assert warmth._spare is not None
            await asyncio.wait_for(warmth._spare._process.wait(), 10)
            await asyncio.wait({warmth._spare._reader}, timeout=10)
            starter, _ = await warmth.starter()
            assert warmth.pids != first
            return await run(starter, [script(tmp_path, "print('fine')")])
        finally:
            await warmth.close()

    assert asyncio.run(scenario()) == (0, "fine\n")


def test_only_installed_packages_are_learnt() -> None:
    assert is_installed("torch.nn")
    assert is_installed("yaml")
    assert not is_installed("tests.launch")
    assert not is_installed("json")
    assert not is_installed("no_such_module")
    assert not is_installed("__main__")
