"""Runs of other programs, without a shell, within a deadline and a limit of their output; and the time limits
of operations of several steps."""

import math
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gateway_contract.base.errors import GatewayApiError

#: The whole environment of a program, whose messages must not depend on the environment of the core.
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_CHUNK_BYTES = 1 << 16


class ProgramFailed(GatewayApiError):
    """Failure of a program to start, to end in time, or to print less than the limit. It runs no more."""


class ProgramMissing(ProgramFailed):
    """Failure to start a program that is not installed."""


@dataclass(frozen=True)
class EndedProgram:
    """A program that has ended. The status is negative after a signal, as in `subprocess`."""

    status: int
    output: bytes
    errors: bytes


def run(command: Sequence[str], *, seconds: float, most: int) -> EndedProgram:
    """Run a program until it and all children that hold its output have ended; kill them after `seconds`.
    `most` is the limit of its output and errors together, in bytes. Raises ProgramFailed."""
    end, name = time.monotonic() + seconds, Path(command[0]).name
    if seconds <= 0:
        # A program that is killed at once may have done a part of its work.
        raise ProgramFailed(f"no time was left to run {name}")
    try:
        # The group of a new session has the children too: one signal reaches all.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd="/",
            env=_ENVIRONMENT,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        raise ProgramMissing(f"cannot run {name}: {error.strerror}") from error
    except OSError as error:
        raise ProgramFailed(f"cannot run {name}: {error.strerror}") from error
    assert process.stdout is not None and process.stderr is not None  # noqa: S101 - they are pipes
    with process.stdout as output, process.stderr as errors:
        try:
            printed, complaints = _read(output, errors, end, most)
            process.wait(max(0, end - time.monotonic()))
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            raise ProgramFailed(f"{name} did not end within {seconds:.3g} s") from error
        except OverflowError as error:
            raise ProgramFailed(f"{name} printed more than {most} bytes") from error
        finally:
            # The process id is not reused before the process has been waited for.
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return EndedProgram(process.returncode, printed, complaints)


def _read(output: IO[bytes], errors: IO[bytes], end: float, most: int) -> tuple[bytes, bytes]:
    """Return the content of two pipes. Raises TimeoutError, and OverflowError above `most` bytes."""
    read = {output: bytearray(), errors: bytearray()}
    with selectors.DefaultSelector() as selector:
        for pipe, text in read.items():
            selector.register(pipe, selectors.EVENT_READ, text)
        while selector.get_map():
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            for key, _ in selector.select(left):
                if data := os.read(key.fd, _CHUNK_BYTES):
                    key.data.extend(data)
                else:
                    selector.unregister(key.fileobj)
            if sum(map(len, read.values())) > most:
                raise OverflowError
    return bytes(read[output]), bytes(read[errors])


@dataclass(frozen=True)
class TimeLimit:
    """Time limit of an operation: `end` in monotonic seconds. A step may take the part `share` of the time
    left."""

    end: float = math.inf
    share: float = 1.0

    def left(self, most: float = math.inf) -> float:
        """Return the seconds for the next step, at most `most`; 0 if the time is over."""
        return max(0.0, min(most, (self.end - time.monotonic()) * self.share))


NO_LIMIT = TimeLimit()


@dataclass(frozen=True)
class CommitLimits:
    """Time limits of a commit for the daemons, and of putting back after a failure."""

    apply: TimeLimit
    put_back: TimeLimit

    @classmethod
    def of(cls, apply: float, put_back: float) -> "CommitLimits":
        """Return limits of so many seconds from now on. A step of putting back takes half of the time left: a
        daemon that hangs again must leave some to the others."""
        now = time.monotonic()
        return cls(TimeLimit(now + apply), TimeLimit(now + apply + put_back, share=0.5))
