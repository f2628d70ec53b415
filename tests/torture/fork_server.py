"""A fork server: a core is a fork of a process that has imported it, and starts in a few milliseconds.

`python -m tests.torture.fork_server` is that process. It reads commands on stdin, one JSON object a line, and
answers each with one. What it forks runs the command `gateway-core lab` with options of its own: to the
kernel, and to a test that kills it, it is a core.
"""

import ctypes
import gc
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from gateway_api.cli.core.lab import lab
from gateway_api.wire.varlink.client import Client

_INTERFACE = "org.gatewayapi.core"
#: Longer than any step takes: a test must fail, not wait forever.
_PATIENCE = 30.0
# prctl(2): with Yama, a process may allow ptrace to processes that are not its parents.
_PR_SET_PTRACER, _PR_SET_PTRACER_ANY = 0x59616D61, ctypes.c_ulong(-1)


class ForkServer:
    """The process and its forks; all end with the block."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            start_new_session=True,
            text=True,
        )

    def __enter__(self) -> "ForkServer":
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_PATIENCE)
        self._process.stdout.close()

    def fork(self, arguments: list[str], log: Path, *, paused: bool) -> int:
        """The process id of a new core. A paused one stops before its first step, until SIGCONT."""
        return self._answer(fork=arguments, log=str(log), paused=paused)

    def status(self, pid: int) -> int:
        """The exit code of an ended core, or its signal as a negative number."""
        return os.waitstatus_to_exitcode(self._answer(wait=pid))

    def _answer(self, **command: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


class Core:
    """A core with its configuration in the folder `configuration` of its home. The end of the block kills it,
    if it still runs."""

    def __init__(self, fork_server: ForkServer, home: Path, factory: Path, *, paused: bool = False) -> None:
        self.home = home
        self.folder = home / "configuration"
        self._log = home / "log"
        self._log.unlink(missing_ok=True)
        self._fork_server = fork_server
        self._status: int | None = None
        arguments = [
            *("--socket", str(home / "s"), "--configuration", str(self.folder)),
            *("--factory", str(factory), "--sessions", "0"),
        ]
        self.pid = fork_server.fork(arguments, self._log, paused=paused)
        # It refers to this process even after its id is reused, and a select can wait for it.
        self._handle = os.pidfd_open(self.pid)
        self._client = Client(home / "s", timeout=_PATIENCE)

    def __enter__(self) -> "Core":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.kill()
        self._client.close()
        os.close(self._handle)

    @property
    def log(self) -> str:
        """Its output so far."""
        return self._log.read_text() if self._log.exists() else ""

    def ready(self) -> bool:
        """Waits until it serves. False if it ended before."""
        while 'message="serving ' not in self.log:
            # Only a millisecond, because a thousand cores start.
            if self.ended(0.001):
                return False
        return True

    def call(self, method: str, **parameters: Any) -> Any:
        """The reply's fields. Raises Unreachable and ErrorReply."""
        return json.loads(bytes(self._client.call(f"{_INTERFACE}.{method}", parameters)))

    def serving_thread(self) -> int:
        """The id of the thread that handles all calls of this client, before the first one."""
        tasks = Path(f"/proc/{self.pid}/task")
        before = {entry.name for entry in tasks.iterdir()}
        self.call("GetHealth")
        (new,) = {entry.name for entry in tasks.iterdir()} - before
        return int(new)

    def send(self, number: signal.Signals) -> None:
        signal.pidfd_send_signal(self._handle, number)

    def ended(self, timeout: float = _PATIENCE) -> bool:
        """True if it ends within `seconds`."""
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        return bool(poll.poll(timeout * 1000))

    def status(self) -> int:
        """Waits for its end: the exit code, or the signal as a negative number."""
        if self._status is None:
            assert self.ended(), f"the core lives on: {self.log}"
            self._status = self._fork_server.status(self.pid)
        return self._status

    def kill(self) -> None:
        """Kills it with SIGKILL and waits for its end: a power cut without the loss of unsynced data."""
        if self._status is None:
            self.send(signal.SIGKILL)
            self.status()


def _main() -> None:
    children: set[int] = set()
    # Late imports of a start, so that no fork repeats them.
    resources.files("gateway_api").is_dir()
    # Otherwise the first collection in each fork would copy every page with an object.
    gc.freeze()
    try:
        for line in sys.stdin:
            command = json.loads(line)
            if "fork" in command:
                answer = _fork(command["fork"], command["log"], command["paused"])
                children.add(answer)
            else:
                _, answer = os.waitpid(command["wait"], 0)
                children.discard(command["wait"])
            sys.stdout.write(f"{answer}\n")
            sys.stdout.flush()
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)


def _fork(arguments: list[str], log: str, paused: bool) -> int:
    pid = os.fork()
    if pid == 0:
        _be_core(arguments, log, paused)
    if paused:
        os.waitpid(pid, os.WUNTRACED)
    return pid


def _be_core(arguments: list[str], log: str, paused: bool) -> NoReturn:
    status = 1
    try:
        written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        for number, descriptor in enumerate((os.open(os.devnull, os.O_RDONLY), written, written)):
            os.dup2(descriptor, number)
        os.closerange(3, 16)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _PR_SET_PTRACER_ANY, 0, 0, 0)
        if paused:
            os.kill(os.getpid(), signal.SIGSTOP)
        status = lab.main(arguments, "gateway-core lab", standalone_mode=False)
    except BaseException:  # noqa: BLE001 - it must not return into the loop that forked it
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _main()
