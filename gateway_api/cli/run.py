"""Starter of `make run`: runs a gateway API with a certificate, users and simulated subscribers.

The starter runs the core daemon and the API, restarts each of them when it ends, and stops both at a signal.
Their files stay in a folder between runs."""

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
from collections.abc import Callable, Iterable
from contextlib import closing
from functools import partial
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import TypeAlias

import click

from gateway_api.cli import certificates
from gateway_contract import program
from gateway_contract.base import durable
from gateway_contract.base.errors import GatewayApiError
from gateway_contract.base.process import wait_for_signal
from gateway_contract.passwords import hash_password

_Process: TypeAlias = "subprocess.Popen[bytes]"

_FACTORY_FILE = Path(__file__).parents[2] / "etc" / "factory.json"
_START_SECONDS = 60.0
#: Time for each of the two programs to end after Ctrl-C, in seconds. Then the program is killed.
_STOP_SECONDS = 2.5
_RESTART_PAUSE_SECONDS = 1.0
_PR_SET_PDEATHSIG = 1
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_GREETING = """
The gateway API is running, with simulated subscribers. Ctrl-C stops it.

  Page:      {url}/
  API:       {url}/api/v1/docs
  Docs:      {url}/docs/
{login}
{environment} has the users and their passwords. In another shell:

  . {environment}
  curl --cacert "$GATEWAY_CA" "$GATEWAY_URL/api/v1/health"
  TOKEN=$(curl -s --cacert "$GATEWAY_CA" "$GATEWAY_URL/api/v1/auth/login" \\
    -d '{{"username":"'$ADMIN_USER'","password":"'$ADMIN_PASSWORD'"}}' | cut -d'"' -f4)
  {curl}/subscribers?limit=3"
  {curl}/subscribers/1"
  {curl}/subscribers/1" -X DELETE
"""
_LOGIN = """\
  User:      admin
  Password:  {password}
  Log:       {log}

Browsers warn of the self-signed certificate.
"""
_CURL = 'curl -s --cacert "$GATEWAY_CA" -H "Authorization: Bearer $TOKEN" "$GATEWAY_URL/api/v1'


class CannotRun(GatewayApiError):
    """Error of `make run`: the gateway cannot run. The text is the reason, in one sentence."""


class Stopped(GatewayApiError):
    """A signal to stop, before the gateway runs."""


class RunFolder:
    """Folder `STATE` of `make run`, with the files of the gateway."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate = folder / "certificate.pem"
        self.key = folder / "key.pem"
        self.configuration = folder / "configuration"
        self.factory = folder / "factory.json"
        self.environment = folder / "environment"
        self.core_socket = folder / "core.sock"
        self.log = folder / "log"
        self.secret = folder / "secret"
        self._passwords = folder / "passwords.json"

    def prepare(self) -> None:
        """Lock the folder for this process, and create missing files. Raises CannotRun if another process has
        locked the folder, OpensslFailed if openssl fails, and OSError if a file cannot be read or written."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = (self.folder / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # Two cores would replace each other's socket.
            raise CannotRun(f"it runs in {self.folder} already; set STATE to another folder") from error
        # Files of the last run are removed, because scripts wait for the files of this run.
        self.core_socket.unlink(missing_ok=True)
        self.environment.unlink(missing_ok=True)
        certificates.ensure(self.certificate, self.key, "localhost")
        certificates.renew(self.certificate, self.key, "localhost")
        if not _has_content(self.secret):
            durable.replace(self.secret, secrets.token_hex(32).encode())
        if not _has_content(self._passwords):
            if (self.configuration / "state.json").exists():
                raise CannotRun(
                    f"{self._passwords} is lost, and the running configuration has the former passwords; "
                    f"remove the folder {self.configuration} to start afresh"
                )
            # The factory configuration has the hashes of the former passwords. It is removed first: a kill
            # between the two files would leave it for good.
            self.factory.unlink(missing_ok=True)
            passwords = {user: secrets.token_urlsafe(12) for user in ("admin", "operator")}
            durable.replace(self._passwords, json.dumps(passwords).encode())
        if not _has_content(self.factory):
            document = json.loads(_FACTORY_FILE.read_text())
            document["radius"]["secret"] = secrets.token_urlsafe(16)
            document["api"]["users"] = [
                {"username": user, "password_hash": hash_password(password), "role": user}
                for user, password in self.passwords.items()
            ]
            durable.replace(self.factory, json.dumps(document, indent=2).encode())

    @property
    def passwords(self) -> dict[str, str]:
        """Map from username to password."""
        passwords: dict[str, str] = json.loads(self._passwords.read_text())
        return passwords

    def publish(self, url: str) -> None:
        """Write the file with shell assignments for scripts: the URL `url`, paths, usernames and passwords.
        Only the owner can read the file."""
        assignments = {
            "GATEWAY_URL": url,
            "GATEWAY_CA": str(self.certificate),
            "CORE_SOCKET": str(self.core_socket),
        }
        for user, password in self.passwords.items():
            assignments |= {f"{user.upper()}_USER": user, f"{user.upper()}_PASSWORD": password}
        lines = (f"{name}={shlex.quote(text)}\n" for name, text in assignments.items())
        durable.replace(self.environment, "".join(lines).encode())


@click.command()
@click.option("--port", envvar="PORT", type=click.IntRange(1, 65535), default=8443)
@click.option("--sessions", envvar="SESSIONS", type=click.IntRange(0, 200_000), default=200)
@click.option("--arrivals", envvar="ARRIVALS", type=float, default=0.5, help="per second, at the mean")
@click.option("--workers", envvar="WORKERS", type=click.IntRange(1, 64), default=2)
@click.option("--state", envvar="STATE", type=click.Path(path_type=Path, resolve_path=True), default=".run")
def run(port: int, sessions: int, arrivals: float, workers: int, state: Path) -> None:
    """Run the gateway API with simulated subscribers until a signal."""
    folder, url = RunFolder(state), f"https://localhost:{port}"
    _require_free_port(port)
    folder.prepare()
    output = None
    if sys.stdout.isatty():
        # Log lines would scroll the greeting away.
        durable.replace(folder.log, b"")
        output = folder.log.open("ab")

    def start(command: list[str], environment: dict[str, str] | None = None) -> _Process:
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            # Ctrl-C reaches only the starter, which stops the API before its core.
            start_new_session=True,
            preexec_fn=_request_sigterm_at_parent_exit,
        )

    core = [
        *(sys.executable, "-m", "gateway_core", "lab", "--socket", str(folder.core_socket)),
        *("--configuration", str(folder.configuration), "--factory", str(folder.factory)),
        *("--sessions", str(sessions), "--arrivals", str(arrivals)),
    ]
    # The console script: gunicorn started as a module cannot replace itself later (USR2).
    api = [str(Path(sys.executable).parent / "gunicorn"), "--config", "python:gateway_api.serving.users"]
    api_environment = {
        **os.environ,
        "GATEWAY_CORE_SOCKET": str(folder.core_socket),
        "GATEWAY_API_RUNTIME": str(state),
        "GATEWAY_API_STATE": str(state),
        "GATEWAY_API_AUDIT": str(state / "audit"),
        "GATEWAY_API_BIND": os.environ.get("GATEWAY_API_BIND") or f"127.0.0.1:{port}",
        "GATEWAY_API_CERTIFICATE": str(folder.certificate),
        "GATEWAY_API_KEY": str(folder.key),
        "GATEWAY_API_WORKERS": str(workers),
        "SVC_API_SECRET": os.environ.get("SVC_API_SECRET") or folder.secret.read_text(),
    }
    programs = (
        ("core daemon", partial(start, core), folder.core_socket.exists),
        ("API", partial(start, api, api_environment), partial(_is_api_ready, port, folder.certificate)),
    )
    running: dict[str, _Process] = {}
    try:
        for name, start_program, is_ready in programs:
            running[name] = start_program()
            if not _wait_until_ready(is_ready, running.values()):
                where = "above" if output is None else f"in {folder.log}"
                raise CannotRun(f"the {name} did not start; its output is {where}")
        folder.publish(url)
        # Without a terminal, the text has no password: it may go to a log.
        login = _LOGIN.format(password=folder.passwords["admin"], log=folder.log) if output else ""
        environment = shlex.quote(str(folder.environment))
        click.echo(_GREETING.format(url=url, login=login, environment=environment, curl=_CURL))
        while not wait_for_signal(_STOP_SIGNALS, _RESTART_PAUSE_SECONDS):
            for name, start_program, _ in programs:
                if (status := running[name].poll()) is not None:
                    click.echo(f"the {name} ended with {status}; starting it again", err=True)
                    running[name] = start_program()
    except Stopped:
        return
    finally:
        for process in reversed(running.values()):
            _stop(process)
        # Scripts that find the file rely on a running API.
        folder.environment.unlink(missing_ok=True)


def _has_content(path: Path) -> bool:
    """Return True for a file that exists and is not empty: a file may be cut off by a power cut."""
    return path.exists() and path.stat().st_size > 0


def _require_free_port(port: int) -> None:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise CannotRun(f"cannot listen on port {port}: {reason}; set PORT to another") from error


def _request_sigterm_at_parent_exit() -> None:
    """Make the kernel send SIGTERM to this process when the parent process ends. Unblock the signals that the
    parent process has blocked."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _wait_until_ready(is_ready: Callable[[], bool], running: Iterable[_Process]) -> bool:
    """Wait until `is_ready` returns True. Return False if a program in `running` ends, or after a minute.
    Raises Stopped after a signal to stop."""
    deadline = time.monotonic() + _START_SECONDS
    while not is_ready():
        if wait_for_signal(_STOP_SIGNALS, 0.1):
            raise Stopped
        if time.monotonic() > deadline or any(process.poll() is not None for process in running):
            return False
    return True


def _is_api_ready(port: int, certificate: Path) -> bool:
    context = ssl.create_default_context(cafile=certificate)
    # By address: a machine may have no /etc/hosts with the name localhost.
    with closing(HTTPSConnection("127.0.0.1", port, timeout=5, context=context)) as connection:
        try:
            connection.request("GET", "/api/v1/health")
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, HTTPException):
            return False


def _stop(process: _Process) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def main() -> int:
    """Run the command, and return the exit status: 0 after a signal, 1 if the gateway could not run, or 2 if
    a variable has a wrong value."""
    # The signals are blocked and waited for: a handler would interrupt any code, such as a lock of
    # `subprocess`.
    signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
    try:
        return program.run(run, "make run")
    except (GatewayApiError, OSError) as error:
        click.echo(f"cannot run the gateway API: {error}", err=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
