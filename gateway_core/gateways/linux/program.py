"""Runs of other programs, without a shell, with limits of run time and output; and time limits for operations
of several steps."""

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

#: Complete environment of a program: its messages must not depend on the environment of the core.
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_CHUNK_BYTES = 1 << 16


class ProgramFailed(GatewayApiError):
    """Failure of a program to start, to end in time, or to keep the output within the limit. The program is
    no longer running."""


class ProgramMissing(ProgramFailed):
    """Failure to start a program that is not installed."""


@dataclass(frozen=True)
class ProgramResult:
    """Result of a program that has ended: exit status, standard output and standard error. The status is the
    negative number of a signal that ended the program, as in `subprocess`."""

    status: int
    output: bytes
    errors: bytes


def run(command: Sequence[str], *, seconds: float, max_bytes: int) -> ProgramResult:
    """Run a program, and wait until the program and all child processes that hold the output pipes have
    ended. Kill the processes after `seconds`. `max_bytes` limits standard output and standard error together.
    Raises ProgramMissing if the program is not installed, and ProgramFailed if the program cannot be started
    or exceeds a limit."""
    deadline, name = time.monotonic() + seconds, Path(command[0]).name
    if seconds <= 0:
        # A program that is started and killed at once may do a part of its work.
        raise ProgramFailed(f"no time was left to run {name}")
    try:
        # The children are in the process group of the new session: one signal reaches all of them.
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
            output_bytes, error_bytes = _read(output, errors, deadline, max_bytes)
            process.wait(max(0, deadline - time.monotonic()))
        except (TimeoutError, subprocess.TimeoutExpired) as error:
            raise ProgramFailed(f"{name} did not end within {seconds:.3g} s") from error
        except OverflowError as error:
            raise ProgramFailed(f"{name} printed more than {max_bytes} bytes") from error
        finally:
            # The process id is not reused before the process has been waited for.
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    return ProgramResult(process.returncode, output_bytes, error_bytes)


def _read(output: IO[bytes], errors: IO[bytes], deadline: float, max_bytes: int) -> tuple[bytes, bytes]:
    """Return the content of two pipes. Raises TimeoutError if a pipe is still open at the `deadline`, and
    OverflowError if the pipes contain more than `max_bytes` in total."""
    contents = {output: bytearray(), errors: bytearray()}
    with selectors.DefaultSelector() as selector:
        for pipe, content in contents.items():
            selector.register(pipe, selectors.EVENT_READ, content)
        while selector.get_map():
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                raise TimeoutError
            for key, _ in selector.select(remaining):
                if data := os.read(key.fd, _CHUNK_BYTES):
                    key.data.extend(data)
                else:
                    selector.unregister(key.fileobj)
            if sum(map(len, contents.values())) > max_bytes:
                raise OverflowError
    return bytes(contents[output]), bytes(contents[errors])


@dataclass(frozen=True)
class TimeLimit:
    """Time limit of an operation of several steps. `end` is in monotonic seconds. Each step may use the
    fraction `share` of the remaining time."""

    end: float = math.inf
    share: float = 1.0

    def get_remaining(self, max_seconds: float = math.inf) -> float:
        """Return the seconds for the next step, at most `max_seconds`; 0 after the `end`."""
        return max(0.0, min(max_seconds, (self.end - time.monotonic()) * self.share))


NO_LIMIT = TimeLimit()


@dataclass(frozen=True)
class CommitLimits:
    """Time limits for applying a commit to the daemons, and for restoring the daemons after a failure."""

    apply: TimeLimit
    put_back: TimeLimit

    @classmethod
    def of(cls, apply_seconds: float, put_back_seconds: float) -> "CommitLimits":
        """Return limits that start now. Each step of the restoration may use half of the remaining time, so
        that a daemon that hangs leaves time for the other daemons."""
        now = time.monotonic()
        return cls(
            TimeLimit(now + apply_seconds), TimeLimit(now + apply_seconds + put_back_seconds, share=0.5)
        )
