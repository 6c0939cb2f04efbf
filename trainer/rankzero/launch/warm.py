"""Keeping a warm spare: started with the container, taught by the first attempt, renewed when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rankzero.launch.spare import BASELINE, Spare, SpareError
from rankzero.launch.starters import Starter, WarmStarter, start_plainly

ENV_IMPORTS = "RANKZERO_IMPORTS"
"""Where a forked worker notes what it imports."""
LEARN_AFTER = 20.0
"""Seconds into an attempt after which its imports are taken over: by then a script has imported what it will."""


class Warmth:
    """Hands out a starter for each attempt. ``environment`` is what every worker gets, ``extra`` modules to import."""

    def __init__(self, environment: Mapping[str, str], extra: Sequence[str], say: Callable[[str], None]) -> None:
        self._environment = dict(environment)
        self._wanted = [*BASELINE, *extra]
        self._say = say
        self._folder = tempfile.TemporaryDirectory(prefix="rankzero-warm-")
        self._spare: Spare | None = None
        self._preload: asyncio.Task[None] | None = None
        self._learning: asyncio.Task[None] | None = None

    @property
    def pids(self) -> set[int]:
        """The spare's process, if there is one."""
        return {self._spare.pid} if self._spare is not None else set()

    @property
    def memory(self) -> int:
        """Bytes that the spare holds at most; what it shares with its workers counts once."""
        return self._spare.memory if self._spare is not None else 0

    async def open(self) -> None:
        """Start a spare and let it import in the background."""
        try:
            self._spare = await Spare.start(self._environment)
        except OSError as error:
            self._say(f"no warm spare: {error.strerror}")
            return
        self._preload = asyncio.create_task(self._import(self._wanted))

    async def starter(self) -> tuple[Starter, dict[str, str]]:
        """A way to start the workers of one attempt, and what to add to their environment.

        Waits for imports under way: a fresh process would have to make them too, on the same cores.
        """
        if self._spare is None or not self._spare.alive:
            await self.open()
        if self._spare is None:
            return start_plainly, {}
        if self._preload is not None:
            await self._preload
        imports = Path(self._folder.name, "imports")
        imports.unlink(missing_ok=True)
        self._learning = asyncio.create_task(self._learn(imports))
        return WarmStarter(self._spare, self._say), {ENV_IMPORTS: str(imports)}

    async def close(self) -> None:
        """End the spare, and with it its workers."""
        for task in (self._learning, self._preload):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if self._spare is not None:
            await self._spare.close()
        self._folder.cleanup()

    async def _import(self, modules: Sequence[str]) -> None:
        assert self._spare is not None
        try:
            await self._spare.preload(modules, self._say)
        except SpareError as error:
            self._say(f"the warm spare did not warm up: {error}")

    async def _learn(self, imports: Path) -> None:
        """Import in the spare what the attempt's workers imported from installed packages."""
        await asyncio.sleep(LEARN_AFTER)
        try:
            seen = dict.fromkeys(imports.read_text(encoding="utf-8").split())
        except FileNotFoundError:
            return
        new = [name for name in seen if name not in self._wanted and is_installed(name)]
        if new:
            self._wanted += new
            await self._import(new)


def is_installed(module: str) -> bool:
    """True for a module of an installed package: never the user's own code, which may change between attempts."""
    import importlib.util

    top = module.partition(".")[0]
    if top in sys.builtin_module_names or top == "__main__":
        return False
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    origin = (spec.origin or next(iter(spec.submodule_search_locations or []), "")) if spec else ""
    return "site-packages" in origin or "dist-packages" in origin
