"""`make run`: a gateway API with a certificate, users and simulated subscribers.

Starts the core daemon and the API, restarts either when it ends, and stops both at a signal. Keeps their
files in a folder from one run to the next."""

import ctypes
import fcntl
import json
import os
import secrets
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

from gateway_api.cli import certificates
from gateway_api.cli.setup import is_document
from gateway_contract.base import durable
from gateway_contract.base.errors import GatewayApiError
from gateway_contract.base.process import has_signal
from gateway_contract.passwords import hash_password

_SECRET_BYTES = 32
_FACTORY = Path(__file__).parents[2] / "etc" / "factory.json"
_START_TIMEOUT = 60.0
#: Both together have 5 s after Ctrl-C.
_API_STOP_TIMEOUT = 3.5
_CORE_STOP_TIMEOUT = 1.0
_RESTART_PAUSE = 1.0
_PR_SET_PDEATHSIG = 1
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class CannotRun(GatewayApiError):
    """The text is the reason, in one sentence."""


@dataclass(frozen=True)
class Options:
    """Environment variables of the same names. `arrivals` is per second."""

    port: int
    sessions: int
    arrivals: float
    workers: int
    state: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Options":
        def number(name: str, default: str, least: int, most: int) -> float:
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


class RunFolder:
    """The files of one `STATE` folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "certificate.pem"
        self.key = folder / "key.pem"
        self.configuration = folder / "configuration"
        self.factory = folder / "factory.json"
        self.environment = folder / "environment"
        self.core_socket = folder / "core.sock"
        self._passwords = folder / "passwords.json"
        self._secret = folder / "secret"

    def prepare(self) -> None:
        """Make missing or incomplete files. Raises GatewayApiError and OSError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if len(os.fsencode(self.core_socket)) > 107:  # the room of sockaddr_un, without the NUL
            raise CannotRun(
                f"the path {self.core_socket} is too long for a socket; set STATE to a shorter one"
            )
        self._lock()
        self.core_socket.unlink(missing_ok=True)
        # Left from the last run: scripts must wait for the new one.
        self.environment.unlink(missing_ok=True)
        certificates.ensure(self.certificate, self.key, "localhost")
        if not certificates.is_ours(self.certificate):
            # An early version made certificates that can sign for any name.
            self.certificate.unlink()
            certificates.ensure(self.certificate, self.key, "localhost")
        certificates.renew(self.certificate, self.key, "localhost")
        if not (self._secret.exists() and len(self.secret) >= _SECRET_BYTES):
            _write(self._secret, secrets.token_hex(_SECRET_BYTES))
        if not is_document(self._passwords):
            if (self.configuration / "state.json").exists():
                raise CannotRun(
                    f"{self._passwords} is lost, and the running configuration has the former passwords; "
                    f"remove the folder {self.configuration} to start afresh"
                )
            # First, as it has hashes of the former passwords, which a kill in between would leave for good.
            self.factory.unlink(missing_ok=True)
            _write(self._passwords, json.dumps({u: secrets.token_urlsafe(12) for u in ("admin", "operator")}))
        if not is_document(self.factory):
            _write(self.factory, json.dumps(self._factory_configuration(), indent=2) + "\n")

    def _lock(self) -> None:
        """Hold a lock until this process ends: two cores would replace each other's socket."""
        self._held = (self.folder / "lock").open("w")
        try:
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise CannotRun(f"it runs in {self.folder} already; set STATE to another folder") from error

    @property
    def passwords(self) -> dict[str, str]:
        held: dict[str, str] = json.loads(self._passwords.read_text())
        return held

    @property
    def secret(self) -> str:
        return self._secret.read_text().strip()

    def new_log(self) -> Path:
        """Return an empty file for the output of this run."""
        log = self.folder / "log"
        _write(log, "")
        return log

    def publish(self, url: str) -> None:
        """Write shell assignments for scripts."""
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
        document = json.loads(_FACTORY.read_text())
        document["radius"]["secret"] = secrets.token_urlsafe(16)
        document["api"]["users"] = [
            {"username": user, "password_hash": hash_password(password), "role": user}
            for user, password in self.passwords.items()
        ]
        return document


def _write(path: Path, text: str) -> None:
    """Atomically, and readable for its owner only."""
    durable.replace(path, text.encode())


def greeting(state: RunFolder, url: str, log: Path | None) -> str:
    """Return the text after the start. Without a `log` it has no password: then its output may go to a
    log."""
    api = 'curl -s --cacert "$GATEWAY_CA" -H "Authorization: Bearer $TOKEN" "$GATEWAY_URL/api/v1'
    page = f"  Page:      {url}/\n"
    if log is None:
        users = f"{page}\nUsers and passwords are in {state.environment}"
    else:
        users = f"""{page}\
  User:      admin
  Password:  {state.passwords["admin"]}
  Log:       {log}

Browsers warn of the self-signed certificate. {state.environment} also has a user with the role operator."""
    return f"""
The gateway API is running, with simulated subscribers. Ctrl-C stops it.

{users}

In another shell:

  . {shlex.quote(str(state.environment))}
  curl --cacert "$GATEWAY_CA" "$GATEWAY_URL/api/v1/health"
  TOKEN=$(curl -s --cacert "$GATEWAY_CA" "$GATEWAY_URL/api/v1/auth/login" \\
    -d '{{"username":"'$ADMIN_USER'","password":"'$ADMIN_PASSWORD'"}}' | cut -d'"' -f4)
  {api}/subscribers?limit=3"
  {api}/subscribers/1"
  {api}/subscribers/1" -X DELETE

"""


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
        """Return True at once after a signal, False after so many seconds."""
        self._received = self._received or has_signal(_STOPS, seconds)
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
        *(sys.executable, "-m", "gateway_core", "lab"),
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
    """Wait until nothing lacks, or it is stopped. `lacks` tells why it is not ready, `words` where the
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
