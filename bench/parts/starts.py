"""Starts: the help of the command line, the API and the core."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from statistics import median

from bench.pairs import Figure
from bench.parts.plan import Plan
from gateway_api.cli.run import RunFolder
from tests.support.stack import running_api, running_core

_HELP = (str(Path(sys.executable).parent / "gatewayctl"), "--help")


def measured(plan: Plan) -> Iterator[tuple[str, Figure]]:
    """The figures, by the keys of their goals. Both services are looked at every 20 ms."""
    folder, rounds = RunFolder(plan.folder / "gateway"), plan.effort.rounds
    folder.prepare()

    def core() -> AbstractContextManager[object]:
        return running_core(folder.core_socket, folder.factory, "--sessions", str(plan.many))

    def api() -> AbstractContextManager[object]:
        return running_api(folder.core_socket, folder.folder)

    yield "start-help", _median(_help() for _ in range(rounds))
    yield "start-core", _median(_until_ready(core) for _ in range(rounds))
    with core():
        yield "start-api", _median(_until_ready(api) for _ in range(rounds))


def _median(seconds: Iterator[float]) -> Figure:
    value = median(seconds) * 1000
    return Figure(value, None, value, "ms")


def _help() -> float:
    began = time.monotonic()
    subprocess.run(_HELP, stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - began


def _until_ready(service: Callable[[], AbstractContextManager[object]]) -> float:
    began = time.monotonic()
    with service():
        return time.monotonic() - began
