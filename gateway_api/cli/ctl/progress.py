"""Progress of long work, on standard error: a bar on a terminal, elsewhere a line for each tenth."""

import sys
from types import TracebackType
from typing import Any

from gateway_api.cli.ctl.failures import complain

#: Work with fewer steps is over before anybody has seen a bar.
_FEWEST = 2


class Progress:
    """A context, in which `advance` or `reach` tells how far the work of `total` steps is."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Progress":
        if sys.stderr.isatty() and self._total >= _FEWEST:
            # Here, as only a terminal needs it.
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            columns = (
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.description}"),
                TimeRemainingColumn(),
            )
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("0 failed", total=self._total)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def advance(self, *, failed: int) -> None:
        """One step more is done."""
        self.reach(self._done + 1, failed=failed)

    def reach(self, done: int, *, failed: int) -> None:
        """So many steps are done, some of which failed."""
        before, self._done = self._done, done
        if self._bar is not None:
            self._bar.update(self._task, completed=done, description=f"{failed} failed")
        elif self._total >= _FEWEST and done * 10 // self._total > before * 10 // self._total:
            complain([f"{done} of {self._total}, {failed} failed"])
