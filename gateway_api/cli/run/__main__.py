"""Starts the core daemon and the API, starts either again when it dies, and stops both when told to."""

import os
import socket
import ssl
import sys
import time
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

from gateway_api.cli.run.child import Child
from gateway_api.cli.run.greeting import greeting
from gateway_api.cli.run.options import CannotRun, Wishes
from gateway_api.cli.run.state import State
from gateway_api.cli.run.stop import Stop

_START_TIMEOUT = 60.0
#: Both children together have 5 s after Ctrl-C.
_API_STOP_TIMEOUT = 3.5
_CORE_STOP_TIMEOUT = 1.0
_RESTART_PAUSE = 1.0


def main() -> int:
    """Exit status 0 when it was told to stop, 1 when it could not run."""
    stop = Stop()
    children: list[Child] = []
    try:
        wishes = Wishes.from_environment(os.environ)
        state = State(wishes.state)
        _check_port(wishes.port)
        state.prepare()
        url = f"https://localhost:{wishes.port}"
        # Each request would push the greeting up and off a terminal.
        log = state.new_log() if sys.stdout.isatty() else None
        words = "above" if log is None else f"in {log}"
        children.append(_start_core(wishes, state, log))
        _wait(stop, children, state.core_socket.exists, "the core daemon didn't start", words)
        children.append(_start_api(wishes, state, log))
        _wait(
            stop, children, lambda: _answers(wishes.port, state.certificate), "the API didn't answer", words
        )
        if not stop.is_set():
            state.publish(url)
            sys.stdout.write(greeting(state, url, log))
            sys.stdout.flush()
        _keep_alive(stop, children)
    except (CannotRun, OSError) as error:
        sys.stderr.write(f"cannot run the gateway API: {error}\n")
        return 1
    finally:
        for child in reversed(children):
            child.stop(_CORE_STOP_TIMEOUT if child is children[0] else _API_STOP_TIMEOUT)
        if children:
            # Who reads it must find something that answers.
            state.environment.unlink(missing_ok=True)
    return 0


def _start_core(wishes: Wishes, state: State, log: Path | None) -> Child:
    command = [
        *(sys.executable, "-m", "gateway_api.cli.core"),
        *("--socket", str(state.core_socket)),
        *("--configuration", str(state.configuration), "--factory", str(state.factory)),
        *("--sessions", str(wishes.sessions), "--arrivals", str(wishes.arrivals)),
    ]
    # The core has no business with what signs the tokens.
    environment = {key: value for key, value in os.environ.items() if key != "SVC_API_SECRET"}
    return Child("core daemon", command, environment, log)


def _start_api(wishes: Wishes, state: State, log: Path | None) -> Child:
    # The console script: started as a module, gunicorn can't replace itself later (USR2).
    gunicorn = str(Path(sys.executable).parent / "gunicorn")
    environment = {
        **os.environ,
        "GATEWAY_CORE_SOCKET": str(state.core_socket),
        "GATEWAY_API_RUNTIME": str(state.folder),
        "GATEWAY_API_STATE": str(state.folder),
        "GATEWAY_API_AUDIT": str(state.folder / "audit"),
        "GATEWAY_API_BIND": f"127.0.0.1:{wishes.port}",
        "GATEWAY_API_CERTIFICATE": str(state.certificate),
        "GATEWAY_API_KEY": str(state.key),
        "GATEWAY_API_WORKERS": str(wishes.workers),
        "SVC_API_SECRET": os.environ.get("SVC_API_SECRET") or state.secret,
    }
    # gunicorn would take these for settings of its own.
    environment.pop("PORT", None)
    environment.pop("GUNICORN_CMD_ARGS", None)
    return Child("API", [gunicorn, "--config", "python:gateway_api.serving.users"], environment, log)


def _check_port(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As gunicorn will: or the connections of the last run would look like a port in use.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            reason = f"cannot listen on port {port}: {error.strerror}; set PORT to another"
            raise CannotRun(reason) from error


def _wait(stop: Stop, children: list[Child], ready: Callable[[], bool], failure: str, words: str) -> None:
    """Returns when it is ready, or when it is told to stop. `words` is where the children's are. Raises
    CannotRun."""
    deadline = time.monotonic() + _START_TIMEOUT
    while not (ready() or stop.wait(0.1)):
        if any(child.exit_status() is not None for child in children):
            raise CannotRun(f"{failure}; its own words are {words}")
        if time.monotonic() > deadline:
            raise CannotRun(f"{failure} within {_START_TIMEOUT:g} s")


def _answers(port: int, certificate: Path) -> bool:
    connection = HTTPSConnection(
        "localhost", port, timeout=5, context=ssl.create_default_context(cafile=certificate)
    )
    try:
        connection.request("GET", "/api/v1/health")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _keep_alive(stop: Stop, children: list[Child]) -> None:
    while not stop.wait(0.2):
        for child in children:
            status = child.exit_status()
            if status is not None and not stop.wait(_RESTART_PAUSE):
                sys.stderr.write(f"the {child.name} ended with {status}; starting it again\n")
                child.restart()


if __name__ == "__main__":
    sys.exit(main())
