"""Another program, run without a shell, with a deadline and a limit of what it may print. The time limit of
an operation of several steps."""

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

#: The whole environment of a program. Its messages must not depend on the one of the core.
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_CHUNK = 1 << 16


class ProgramFailed(GatewayApiError):
    """The program did not start, did not end in time, or printed too much. It does not run any more."""


class ProgramMissing(ProgramFailed):
    """It is not installed."""


@dataclass(frozen=True)
class EndedProgram:
    """A program that ended. The status is negative after a signal, as with `subprocess`."""

    status: int
    output: bytes
    errors: bytes


def run(command: Sequence[str], *, seconds: float, most: int) -> EndedProgram:
    """Wait for a program and all children that hold its output; kill them at the deadline. `most` is the
    limit of its output and errors together, in bytes. Raises ProgramFailed."""
    end, name = time.monotonic() + seconds, Path(command[0]).name
    if seconds <= 0:
        # Killed at once, it may have done a part.
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
            # Its id is its own until it has been waited for.
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return EndedProgram(process.returncode, printed, complaints)


def _read(output: IO[bytes], errors: IO[bytes], end: float, most: int) -> tuple[bytes, bytes]:
    """Return all that comes through two pipes. Raises TimeoutError, and OverflowError above the limit."""
    read = {output: bytearray(), errors: bytearray()}
    with selectors.DefaultSelector() as selector:
        for pipe, text in read.items():
            selector.register(pipe, selectors.EVENT_READ, text)
        while selector.get_map():
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            for key, _ in selector.select(left):
                if data := os.read(key.fd, _CHUNK):
                    key.data.extend(data)
                else:
                    selector.unregister(key.fileobj)
            if sum(map(len, read.values())) > most:
                raise OverflowError
    return bytes(read[output]), bytes(read[errors])


@dataclass(frozen=True)
class TimeLimit:
    """The end of an operation, in monotonic seconds. A step may take `share` of the time left."""

    end: float = math.inf
    share: float = 1.0

    def left(self, most: float = math.inf) -> float:
        """Seconds for the next step, which takes `most` at the longest. 0 if the time is over."""
        return max(0.0, min(most, (self.end - time.monotonic()) * self.share))


NO_LIMIT = TimeLimit()


@dataclass(frozen=True)
class CommitLimits:
    """The limits of a commit for the daemons beside the core."""

    apply: TimeLimit
    put_back: TimeLimit

    @classmethod
    def of(cls, apply: float, put_back: float) -> "CommitLimits":
        """In seconds: first those to apply, then those to put back. A step of putting back takes half of the
        time left: a daemon that hangs again must leave some to the others."""
        now = time.monotonic()
        return cls(TimeLimit(now + apply), TimeLimit(now + apply + put_back, share=0.5))
