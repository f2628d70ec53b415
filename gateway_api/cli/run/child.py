"""A process that is started, started again, and stopped."""

import ctypes
import signal
import subprocess
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path

_PR_SET_PDEATHSIG = 1


class Child:
    """A process that is kept alive until it is stopped. What it writes goes to the end of a file, or where
    ours goes."""

    def __init__(
        self, name: str, command: list[str], environment: Mapping[str, str], log: Path | None
    ) -> None:
        self.name = name
        self._command = command
        self._environment = dict(environment)
        self._log = log
        self._process = self._start()

    def exit_status(self) -> int | None:
        return self._process.poll()

    def restart(self) -> None:
        self._process = self._start()

    def stop(self, timeout: float) -> None:
        """Asks, and after `timeout` seconds insists."""
        self._process.terminate()
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start(self) -> "subprocess.Popen[bytes]":
        # A session of its own: Ctrl-C reaches us alone, and we stop the API before its core. And
        # should we be killed, the children have to go as well.
        with self._log.open("ab") if self._log else nullcontext() as output:
            return subprocess.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )


def _die_with_parent() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
