"""Keeping a warm spare: started with the container, taught by the first attempt, renewed when it dies."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path

from rankzero.launch.spare import BASELINE, Spare, SpareError
from rankzero.launch.starters import Starter, WarmStarter, start_plainly

ENV_IMPORTS = "RANKZERO_IMPORTS"
"""Where a forked worker notes what it imports."""
IMPORTED_WITHIN = 120.0
"""Seconds that the start of an attempt waits for a spare: it takes 20 s without compiled bytecode on a slow disk."""
LEARN_AFTER = 20.0
"""Seconds into an attempt after which its imports are taken over: by then a script has imported what it will."""


class Warmth:
    """Hands out a starter for each attempt.

    ``environment`` is what every worker gets, ``extra`` names modules to import beside the baseline, and ``script``
    is what will run: what its own folder holds is never imported beforehand.
    """

    def __init__(
        self, environment: Mapping[str, str], extra: Sequence[str], script: str, say: Callable[[str], None]
    ) -> None:
        self._environment = dict(environment)
        self._wanted = [*BASELINE, *extra]
        self._learnt: set[str] = set()
        python_path = environment.get("PYTHONPATH", "")
        self._own_folders = [str(Path(script).resolve().parent), *filter(None, python_path.split(os.pathsep))]
        self._say = say
        self._folder = tempfile.TemporaryDirectory(prefix="rankzero-warm-")
        self._spares: set[Spare] = set()
        """All that run, one that is still importing included."""
        self._spare: Spare | None = None
        self._successor: Spare | None = None
        self._warming: asyncio.Task[None] | None = None
        self._learning: asyncio.Task[None] | None = None

    @property
    def pids(self) -> set[int]:
        """The spares' processes."""
        return {spare.pid for spare in self._spares}

    @property
    def memory(self) -> int:
        """Bytes that the spares hold; workers share most of it."""
        return sum(spare.memory for spare in list(self._spares))

    async def open(self) -> None:
        """Start a spare and let it import in the background."""
        self._warming = asyncio.create_task(self._warm_up())

    async def starter(self) -> tuple[Starter, dict[str, str]]:
        """A way to start the workers of one attempt, and what to add to their environment.

        Waits for imports under way, up to :data:`IMPORTED_WITHIN`: a fresh process would have to make them too, on the
        same cores. There must be no workers of an earlier attempt left.
        """
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.wait({self._learning})
        successor, self._successor = self._successor, None
        if successor is not None and successor.alive:
            await self._retire(self._spare)
            self._spare = successor
        else:
            await self._retire(successor)
        if self._spare is not None and not self._spare.alive:
            await self._retire(self._spare)
            self._spare = None
            await self.open()
        if self._warming is not None:
            _, importing = await asyncio.wait({self._warming}, timeout=IMPORTED_WITHIN)
            if importing:
                self._say(
                    f"the warm spare has not imported all within {IMPORTED_WITHIN:g} s; workers are started plainly"
                )
        if self._spare is None:
            return start_plainly, {}
        imports = Path(self._folder.name, "imports")
        imports.unlink(missing_ok=True)
        self._learning = asyncio.create_task(self._learn(imports))
        return WarmStarter(self._spare, self._say), {ENV_IMPORTS: str(imports)}

    async def close(self) -> None:
        """End the spares, and with them their workers."""
        tasks = {task for task in (self._learning, self._warming) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._retire(self._spare)
        await self._retire(self._successor)
        self._folder.cleanup()

    async def _warm_up(self) -> None:
        self._spare = await self._new_spare()

    async def _new_spare(self) -> Spare | None:
        """A spare that has imported all that is wanted; None, said, where there can be none."""
        spare = None
        try:
            spare = await Spare.start(self._environment)
            self._spares.add(spare)
            # Libraries try modules that need not be there: of what was only seen to be asked for, nothing is said.
            await spare.preload(self._wanted, self._say, quietly=self._learnt)
        except (OSError, SpareError) as error:
            self._say(f"no warm spare, workers are started plainly: {error}")
            await self._retire(spare)
            return None
        except asyncio.CancelledError:
            await self._retire(spare)
            raise
        return spare

    async def _learn(self, imports: Path) -> None:
        """Prepare a successor that also imports what this attempt's workers imported from installed packages.

        Not in the present spare: while it imports it hears of no worker's end.
        """
        await asyncio.sleep(LEARN_AFTER)
        try:
            seen = dict.fromkeys(imports.read_text(encoding="utf-8").split())
        except OSError:
            return
        new = [name for name in seen if name not in self._wanted and is_installed(name, self._own_folders)]
        if new:
            self._wanted += new
            self._learnt.update(new)
            self._successor = await self._new_spare()

    async def _retire(self, spare: Spare | None) -> None:
        if spare is not None:
            await spare.close()
            self._spares.discard(spare)


def is_installed(module: str, own_folders: Sequence[str] = ()) -> bool:
    """True for a module of an installed package that no file in ``own_folders`` hides.

    The user's own code is never imported beforehand: it may change between attempts.
    """
    top = module.partition(".")[0]
    if top in sys.builtin_module_names or top == "__main__":
        return False
    try:
        if PathFinder.find_spec(top, list(own_folders)) is not None:
            return False
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    origin = (spec.origin or next(iter(spec.submodule_search_locations or []), "")) if spec else ""
    return "site-packages" in origin or "dist-packages" in origin
