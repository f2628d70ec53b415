"""Starter of `make run`: runs a gateway API with a certificate, users and simulated subscribers.

The starter runs the core daemon and the API, restarts each of them when it ends, and stops both at a signal.
Their files stay in a folder between runs."""

import fcntl
import json
import math
import os
import secrets
import shlex
import ssl
import sys
from contextlib import closing
from functools import partial
from http import HTTPStatus
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

import click

from gateway_api.cli import certificates
from gateway_api.cli.starter import (
    CannotRun,
    Program,
    Starter,
    Stopped,
    block_stop_signals,
    require_free_port,
)
from gateway_contract import program
from gateway_contract.base import durable
from gateway_contract.base.errors import GatewayApiError
from gateway_contract.passwords import hash_password

_FACTORY_FILE = Path(__file__).parents[2] / "etc" / "factory.json"
#: Time for each of the two programs to end after Ctrl-C, in seconds. Then the program is killed.
_STOP_SECONDS = 2.5

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


class RunFolder:
    """Folder `STATE` of `make run`, with the files of the gateway. `hostname` is the name of a new
    gateway."""

    def __init__(self, folder: Path, hostname: str = "bng1") -> None:
        self.folder = folder
        self._hostname = hostname
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
            document["system"]["hostname"] = self._hostname
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
@click.option("--number", type=click.IntRange(0, 31), default=0, help="of this gateway among several")
@click.option("--state", envvar="STATE", type=click.Path(path_type=Path, resolve_path=True), default=".run")
def run(port: int, sessions: int, arrivals: float, workers: int, number: int, state: Path) -> None:
    """Run the gateway API with simulated subscribers until a signal."""
    folder, url = RunFolder(state, f"bng{number or 1}"), f"https://localhost:{port}"
    require_free_port(port, "PORT")
    folder.prepare()
    output = None
    if sys.stdout.isatty():
        # Log lines would scroll the greeting away.
        durable.replace(folder.log, b"")
        output = folder.log.open("ab")

    core = [
        *(sys.executable, "-m", "gateway_core", "lab", "--socket", str(folder.core_socket)),
        *("--configuration", str(folder.configuration), "--factory", str(folder.factory)),
        *("--sessions", str(sessions), "--arrivals", str(arrivals)),
        *("--number", str(number), "--seed", str(number or 1)),
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
        Program("core daemon", core, folder.core_socket.exists, output=output),
        Program("API", api, partial(_is_api_ready, port, folder.certificate), api_environment, output),
    )
    starter = Starter(_STOP_SECONDS)
    try:
        for each in programs:
            starter.start(each)
            if not starter.wait_until_ready(each):
                where = "above" if output is None else f"in {folder.log}"
                raise CannotRun(f"the {each.name} did not start; its output is {where}")
        folder.publish(url)
        # Without a terminal, the text has no password: it may go to a log.
        login = _LOGIN.format(password=folder.passwords["admin"], log=folder.log) if output else ""
        environment = shlex.quote(str(folder.environment))
        click.echo(_GREETING.format(url=url, login=login, environment=environment, curl=_CURL))
        starter.watch(math.inf)
    except Stopped:
        return
    finally:
        # The API before its core.
        for each in reversed(programs):
            starter.stop([each])
        # Scripts that find the file rely on a running API.
        folder.environment.unlink(missing_ok=True)


def _has_content(path: Path) -> bool:
    """Return True for a file that exists and is not empty: a file may be cut off by a power cut."""
    return path.exists() and path.stat().st_size > 0


def _is_api_ready(port: int, certificate: Path) -> bool:
    context = ssl.create_default_context(cafile=certificate)
    # By address: a machine may have no /etc/hosts with the name localhost.
    with closing(HTTPSConnection("127.0.0.1", port, timeout=5, context=context)) as connection:
        try:
            connection.request("GET", "/api/v1/health")
            return connection.getresponse().status == HTTPStatus.OK
        except (OSError, HTTPException):
            return False


def main() -> int:
    """Run the command, and return the exit status: 0 after a signal, 1 if the gateway could not run, or 2 if
    a variable has a wrong value."""
    block_stop_signals()
    try:
        return program.run(run, "make run")
    except (GatewayApiError, OSError) as error:
        click.echo(f"cannot run the gateway API: {error}", err=True)
        return 1


if __name__ == "__main__":
    sys.exit(main())
