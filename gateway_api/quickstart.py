"""`make run`: a gateway API with a certificate, users and live subscribers, for the taking.

It keeps all it makes in one folder, starts the core daemon and the API, starts either again when it
dies, and stops both when it is told to.
"""

import ctypes
import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import ClassVar

from gateway_api.auth.passwords import hash_password
from gateway_api.errors import GatewayApiError

_ETC = Path(__file__).parent.parent / "etc"
_START_TIMEOUT = 60.0
#: Both children together have 5 s after Ctrl-C.
_API_STOP_TIMEOUT = 3.0
_CORE_STOP_TIMEOUT = 1.0
_RESTART_PAUSE = 1.0
_PR_SET_PDEATHSIG = 1


class CannotRun(GatewayApiError):
    """What is in the way, in one sentence."""


@dataclass(frozen=True)
class Wishes:
    """What the caller can set, from environment variables of the same names. `arrivals` is a second."""

    port: int
    sessions: int
    arrivals: float
    workers: int
    state: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Wishes":
        def number(name: str, default: str, least: float, most: float) -> float:
            text = environment.get(name) or default
            try:
                value = float(text)
            except ValueError:
                value = -1.0
            if not least <= value <= most:
                raise CannotRun(f"{name} must be a number from {least:g} to {most:g}, not {text!r}")
            return value

        return cls(
            port=int(number("PORT", "8443", 1, 65535)),
            sessions=int(number("SESSIONS", "200", 0, 200_000)),
            arrivals=number("ARRIVALS", "0.5", 0, 20_000),
            workers=int(number("WORKERS", "2", 1, 64)),
            state=Path(environment.get("STATE") or ".run").absolute(),
        )


class State:
    """The folder with all that is kept from one run to the next."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "certificate.pem"
        self.key = folder / "key.pem"
        self.configuration = folder / "running.json"
        self.environment = folder / "environment"
        self.core_socket = folder / "core.sock"
        self._passwords = folder / "passwords.json"
        self._secret = folder / "secret"

    def prepare(self) -> None:
        """Makes what isn't there yet. Raises CannotRun."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if len(os.fsencode(self.core_socket)) > 107:  # sockaddr_un's room, less the NUL
            raise CannotRun(
                f"the path {self.core_socket} is too long for a socket; set STATE to a shorter one"
            )
        # From the last run: who waits for this file must not read it before it is true again.
        self.environment.unlink(missing_ok=True)
        if not (self.certificate.exists() and self.key.exists()):
            self._make_certificate()
        if not self._secret.exists():
            _write(self._secret, secrets.token_hex(32))
        if not self._passwords.exists():
            _write(self._passwords, json.dumps({u: secrets.token_urlsafe(12) for u in ("admin", "operator")}))
        if not self.configuration.exists():
            _write(self.configuration, json.dumps(self._factory_configuration(), indent=2) + "\n")

    @property
    def passwords(self) -> dict[str, str]:
        held: dict[str, str] = json.loads(self._passwords.read_text())
        return held

    @property
    def secret(self) -> str:
        return self._secret.read_text().strip()

    def publish(self, url: str) -> None:
        """Writes the shell assignments that others start from."""
        values = {
            "GATEWAY_URL": url,
            "GATEWAY_CA": str(self.certificate),
            "ADMIN_USER": "admin",
            "ADMIN_PASSWORD": self.passwords["admin"],
            "OPERATOR_USER": "operator",
            "OPERATOR_PASSWORD": self.passwords["operator"],
            "CORE_SOCKET": str(self.core_socket),
        }
        _write(self.environment, "".join(f"{key}={shlex.quote(held)}\n" for key, held in values.items()))

    def _factory_configuration(self) -> object:
        document = json.loads((_ETC / "factory.json").read_text())
        document["radius"]["secret"] = secrets.token_urlsafe(16)
        document["api"]["users"] = [
            {"username": user, "password_hash": hash_password(password), "role": user}
            for user, password in self.passwords.items()
        ]
        return document

    def _make_certificate(self) -> None:
        if shutil.which("openssl") is None:
            raise CannotRun("openssl is not installed; it is needed to make a certificate")
        command = [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-nodes", "-days", "3650", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"),
            *("-keyout", str(self.key), "-out", str(self.certificate)),
        ]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise CannotRun(f"openssl could not make a certificate: {made.stderr.strip()}")
        self.key.chmod(0o600)


class Child:
    """A process that is kept alive until it is stopped."""

    def __init__(self, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        self.name = name
        self._command = command
        self._environment = dict(environment)
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
        return subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )


class Stop:
    """Whether somebody has asked us to stop. The signals are blocked and waited for: a handler would
    run in the middle of whatever is running."""

    _SIGNALS: ClassVar = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, self._SIGNALS)
        self._asked = False

    def wait(self, seconds: float) -> bool:
        """True as soon as we are to stop, False after so many seconds."""
        self._asked = self._asked or signal.sigtimedwait(self._SIGNALS, seconds) is not None
        return self._asked

    def is_set(self) -> bool:
        return self.wait(0)


def _die_with_parent() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def main() -> int:
    """Exit status 0 when it was told to stop, 1 when it could not run."""
    stop = Stop()
    children: list[Child] = []
    try:
        wishes = Wishes.from_environment(os.environ)
        state = State(wishes.state)
        state.prepare()
        _check_port(wishes.port)
        url = f"https://localhost:{wishes.port}"
        children.append(_start_core(wishes, state))
        _wait(stop, children, state.core_socket.exists, "the core daemon didn't start")
        children.append(_start_api(wishes, state))
        _wait(stop, children, lambda: _answers(wishes.port, state.certificate), "the API didn't answer")
        if not stop.is_set():
            state.publish(url)
            _greet(state)
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


def _start_core(wishes: Wishes, state: State) -> Child:
    state.core_socket.unlink(missing_ok=True)
    command = [
        *(sys.executable, "-m", "gateway_api.core"),
        *("--socket", str(state.core_socket), "--configuration", str(state.configuration)),
        *("--sessions", str(wishes.sessions), "--arrivals", str(wishes.arrivals)),
    ]
    # The core has no business with what signs the tokens.
    environment = {key: value for key, value in os.environ.items() if key != "SVC_API_SECRET"}
    return Child("core daemon", command, environment)


def _start_api(wishes: Wishes, state: State) -> Child:
    # The console script: started as a module, gunicorn can't replace itself later (USR2).
    gunicorn = str(Path(sys.executable).parent / "gunicorn")
    environment = {
        **os.environ,
        "GATEWAY_CORE_SOCKET": str(state.core_socket),
        "GATEWAY_API_RUNTIME": str(state.folder),
        "GATEWAY_API_BIND": f"127.0.0.1:{wishes.port}",
        "GATEWAY_API_CERTIFICATE": str(state.certificate),
        "GATEWAY_API_KEY": str(state.key),
        "GATEWAY_API_WORKERS": str(wishes.workers),
        "SVC_API_SECRET": os.environ.get("SVC_API_SECRET") or state.secret,
    }
    # gunicorn would take these for settings of its own.
    environment.pop("PORT", None)
    environment.pop("GUNICORN_CMD_ARGS", None)
    return Child("API", [gunicorn, "--config", str(_ETC / "gunicorn.conf.py")], environment)


def _check_port(port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As gunicorn will: or the connections of the last run would look like a port in use.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            reason = f"cannot listen on port {port}: {error.strerror}; set PORT to another"
            raise CannotRun(reason) from error


def _wait(stop: Stop, children: list[Child], ready: Callable[[], bool], failure: str) -> None:
    """Returns when it is ready, or when it is told to stop. Raises CannotRun."""
    deadline = time.monotonic() + _START_TIMEOUT
    while not (ready() or stop.wait(0.1)):
        if any(child.exit_status() is not None for child in children):
            raise CannotRun(f"{failure}; its own words are above")
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


def _greet(state: State) -> None:
    api = 'curl -s --cacert "$GATEWAY_CA" -H "Authorization: Bearer $TOKEN" "$GATEWAY_URL/api/v1'
    sys.stdout.write(
        f"""
The gateway API is running. Ctrl-C stops it. In another shell:

  . {shlex.quote(str(state.environment))}
  curl --cacert "$GATEWAY_CA" "$GATEWAY_URL/api/v1/health"
  TOKEN=$(curl -s --cacert "$GATEWAY_CA" "$GATEWAY_URL/api/v1/auth/login" \\
    -d '{{"username":"'$ADMIN_USER'","password":"'$ADMIN_PASSWORD'"}}' | cut -d'"' -f4)
  {api}/subscribers?limit=3"
  {api}/subscribers/1"
  {api}/subscribers/1" -X DELETE

"""
    )
    sys.stdout.flush()


def _write(path: Path, text: str) -> None:
    """Whole or not at all, and for our own eyes."""
    draft = path.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_text(text)
    draft.replace(path)


if __name__ == "__main__":
    sys.exit(main())
