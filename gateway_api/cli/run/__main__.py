"""`make run`: a gateway API with a certificate, users and simulated subscribers.

Starts the core daemon and the API, restarts either when it ends, and stops both at a signal.
"""

import ctypes
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

from gateway_api.base.errors import GatewayApiError
from gateway_api.cli.run.folder import CannotRun, Options, RunFolder, greeting

_START_TIMEOUT = 60.0
#: Both together have 5 s after Ctrl-C.
_API_STOP_TIMEOUT = 3.5
_CORE_STOP_TIMEOUT = 1.0
_RESTART_PAUSE = 1.0
_PR_SET_PDEATHSIG = 1
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Exit status 0 after a signal, 1 when it could not run."""
    stop = Stop()
    children: list[Child] = []
    try:
        options = Options.from_environment(os.environ)
        state = RunFolder(options.state)
        _check_port(options.port)
        state.prepare()
        url = f"https://localhost:{options.port}"
        # On a terminal, log lines would scroll the greeting away.
        log = state.new_log() if sys.stdout.isatty() else None
        words = "above" if log is None else f"in {log}"
        children.append(_start_core(options, state, log))
        _wait(stop, children, partial(_core_lacks, state), "the core daemon did not start", words)
        children.append(_start_api(options, state, log))
        lacks = partial(_api_lacks, options.port, state.certificate)
        _wait(stop, children, lacks, "the API did not respond", words)
        if not stop.wait(0):
            state.publish(url)
            sys.stdout.write(greeting(state, url, log))
            sys.stdout.flush()
        _keep_alive(stop, children)
    except (GatewayApiError, OSError) as error:
        sys.stderr.write(f"cannot run the gateway API: {error}\n")
        return 1
    finally:
        for child in reversed(children):
            child.stop(_CORE_STOP_TIMEOUT if child is children[0] else _API_STOP_TIMEOUT)
        if children:
            # Scripts that find the file rely on a running API.
            state.environment.unlink(missing_ok=True)
    return 0


class Stop:
    """The signals that stop the program. They are blocked, as a handler would interrupt any code."""

    def __init__(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
        self._received = False

    def wait(self, seconds: float) -> bool:
        """True at once after a signal, False after so many seconds."""
        self._received = self._received or signal.sigtimedwait(_STOPS, seconds) is not None
        return self._received


@dataclass
class Child:
    """A running process. Its output goes to the end of `log`, or with the output of this program."""

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Path | None

    def __post_init__(self) -> None:
        self.start()

    def stop(self, timeout: float) -> None:
        """By SIGTERM, and after `timeout` seconds by SIGKILL."""
        self.process.terminate()
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def start(self) -> None:
        # In a new session: Ctrl-C reaches only this program, which stops the API before its core.
        with self.log.open("ab") if self.log else nullcontext() as output:
            self.process = subprocess.Popen(
                self.command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=_end_with_parent,
            )


def _end_with_parent() -> None:
    """A kill of this program ends the child, too."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _start_core(options: Options, state: RunFolder, log: Path | None) -> Child:
    command = [
        *(sys.executable, "-m", "gateway_api.cli.core", "lab"),
        *("--socket", str(state.core_socket)),
        *("--configuration", str(state.configuration), "--factory", str(state.factory)),
        *("--sessions", str(options.sessions), "--arrivals", str(options.arrivals)),
    ]
    environment = dict(os.environ)
    # The core does not need the secret that signs the tokens.
    environment.pop("SVC_API_SECRET", None)
    return Child("core daemon", command, environment, log)


def _start_api(options: Options, state: RunFolder, log: Path | None) -> Child:
    # The console script: gunicorn started as a module cannot replace itself later (USR2).
    gunicorn = str(Path(sys.executable).parent / "gunicorn")
    environment = {
        **os.environ,
        "GATEWAY_CORE_SOCKET": str(state.core_socket),
        "GATEWAY_API_RUNTIME": str(state.folder),
        "GATEWAY_API_STATE": str(state.folder),
        "GATEWAY_API_AUDIT": str(state.folder / "audit"),
        "GATEWAY_API_BIND": f"127.0.0.1:{options.port}",
        "GATEWAY_API_CERTIFICATE": str(state.certificate),
        "GATEWAY_API_KEY": str(state.key),
        "GATEWAY_API_WORKERS": str(options.workers),
        "SVC_API_SECRET": os.environ.get("SVC_API_SECRET") or state.secret,
    }
    # gunicorn would read these as its own settings.
    environment.pop("PORT", None)
    environment.pop("GUNICORN_CMD_ARGS", None)
    return Child("API", [gunicorn, "--config", "python:gateway_api.serving.users"], environment, log)


def _check_port(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As in gunicorn: otherwise closed connections of the last run look like a port in use.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise CannotRun(f"cannot listen on port {port}: {error.strerror}; set PORT to another") from error


def _wait(
    stop: Stop, children: list[Child], lacks: Callable[[], str | None], failure: str, words: str
) -> None:
    """Waits until nothing lacks, or it is stopped. `lacks` tells why it is not ready, `words` where the
    children's output is. Raises CannotRun."""
    deadline = time.monotonic() + _START_TIMEOUT
    while (reason := lacks()) is not None and not stop.wait(0.1):
        if any(child.process.poll() is not None for child in children):
            raise CannotRun(f"{failure}; its output is {words}")
        if time.monotonic() > deadline:
            raise CannotRun(f"{failure} within {_START_TIMEOUT:g} s: {reason}; its output is {words}")


def _core_lacks(state: RunFolder) -> str | None:
    return None if state.core_socket.exists() else f"it has no socket {state.core_socket}"


def _api_lacks(port: int, certificate: Path) -> str | None:
    context = ssl.create_default_context(cafile=certificate)
    connection = HTTPSConnection("localhost", port, context=context)
    try:
        # By its address: a machine may have no /etc/hosts with the name.
        plain = socket.create_connection(("127.0.0.1", port), timeout=5)
        connection.sock = context.wrap_socket(plain, server_hostname="localhost")
        connection.request("GET", "/api/v1/health")
        response = connection.getresponse()
        return None if response.status == HTTPStatus.OK else f"it responds {response.status}"
    except (OSError, HTTPException) as error:
        return str(error) or type(error).__name__
    finally:
        connection.close()


def _keep_alive(stop: Stop, children: list[Child]) -> None:
    while not stop.wait(0.2):
        for child in children:
            status = child.process.poll()
            if status is not None and not stop.wait(_RESTART_PAUSE):
                sys.stderr.write(f"the {child.name} ended with {status}; starting it again\n")
                child.start()


if __name__ == "__main__":
    sys.exit(main())
