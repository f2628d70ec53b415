"""Starter of programs: starts each of them again when it ends, and stops all of them."""

import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TypeAlias

import click

from gateway_contract.base.errors import GatewayApiError
from gateway_contract.base.process import wait_for_signal

_Process: TypeAlias = "subprocess.Popen[bytes]"

_START_SECONDS = 60.0
_RESTART_PAUSE_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CannotRun(GatewayApiError):
    """A program cannot run. The text is the reason, in one sentence."""


class Stopped(GatewayApiError):
    """A signal to stop, before all programs run."""


@dataclass(frozen=True, eq=False)
class Program:
    """Program with its command and environment variables. `is_ready` returns True when the program serves
    its clients. The output goes to `output`, by default that of this process."""

    name: str
    command: Sequence[str]
    is_ready: Callable[[], bool] = field(default=lambda: True)
    environment: Mapping[str, str] | None = None
    output: IO[bytes] | None = None


class Starter:
    """Starter of programs. A program that has not ended `stop_seconds` after SIGTERM is killed."""

    def __init__(self, stop_seconds: float) -> None:
        self._stop_seconds = stop_seconds
        self._running: dict[Program, _Process] = {}

    def start(self, program: Program) -> None:
        """Start a program. Raises OSError if there is no such program."""
        self._running[program] = subprocess.Popen(
            program.command,
            env=program.environment,
            stdin=subprocess.DEVNULL,
            stdout=program.output,
            stderr=program.output,
            # Ctrl-C reaches only this process, which stops the programs in their order.
            start_new_session=True,
            preexec_fn=_request_sigterm_at_parent_exit,
        )

    def wait_until_ready(self, program: Program) -> bool:
        """Wait until a program is ready. Return False if a program ends, or after a minute. Raises Stopped
        after a signal to stop."""
        deadline = time.monotonic() + _START_SECONDS
        while not program.is_ready():
            if wait_for_signal(_STOP_SIGNALS, 0.1):
                raise Stopped
            has_ended = any(process.poll() is not None for process in self._running.values())
            if has_ended or time.monotonic() > deadline:
                return False
        return True

    def watch(self, seconds: float) -> bool:
        """Start each program again that ends. Return True after `seconds`, or False after a signal to
        stop."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if wait_for_signal(_STOP_SIGNALS, _RESTART_PAUSE_SECONDS):
                return False
            for program, process in list(self._running.items()):
                if (status := process.poll()) is not None:
                    click.echo(f"the {program.name} ended with {status}; starting it again", err=True)
                    self.start(program)
        return True

    def stop(self, programs: Sequence[Program]) -> None:
        """Stop those of the given programs that run, all at once."""
        processes = [self._running.pop(each) for each in programs if each in self._running]
        for process in processes:
            process.terminate()
        deadline = time.monotonic() + self._stop_seconds
        for process in processes:
            try:
                process.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def block_stop_signals() -> None:
    """Block the signals to stop, which the starter waits for. A handler would interrupt any code, such as a
    lock of `subprocess`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)


def require_free_port(port: int, variable: str) -> None:
    """Raises CannotRun if another program listens on a port of this machine. The environment variable
    `variable` sets the port."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise CannotRun(f"cannot listen on port {port}: {reason}; set {variable} to another") from error


def _request_sigterm_at_parent_exit() -> None:
    """Make the kernel send SIGTERM to this process when the parent process ends. Unblock the signals that the
    parent process has blocked."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
