"""Processes of the measurements."""

import os
import resource
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.stack import PATIENCE, wait_for


@contextmanager
def running(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """A process, until the end of the block. Its output goes to `log`."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(command),
            env={**os.environ, **(environment or {})},
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(PATIENCE)
        finally:
            process.kill()


@contextmanager
def listening(
    command: Sequence[str], port: int, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """The same, as soon as it listens on a port of 127.0.0.1."""
    with running(command, log, environment) as process:

        def answers() -> bool:
            assert process.poll() is None, log.read_text()
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        wait_for(f"{command[0]} on port {port}", answers)
        yield process


def resident(pids: Sequence[int]) -> int:
    """Resident bytes of all of them; pages that they share count for each."""
    fields = [Path(f"/proc/{pid}/statm").read_text().split()[1] for pid in pids]
    return sum(map(int, fields)) * resource.getpagesize()


def proportional(pids: Sequence[int]) -> int:
    """Resident bytes of all of them; a page that several share counts once (proc(5), `Pss`)."""
    lines = (
        line.split()
        for pid in pids
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        if line.startswith("Pss:")
    )
    return sum(int(line[1]) << 10 for line in lines)


def raise_descriptor_limit() -> None:
    """For thousands of connections, here and in processes that start from here."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
