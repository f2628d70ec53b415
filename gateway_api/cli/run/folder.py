"""The options of `make run`, the files that it keeps from one run to the next, and its greeting."""

import fcntl
import json
import os
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway_api.auth.passwords import hash_password
from gateway_api.base import durable
from gateway_api.base.errors import GatewayApiError
from gateway_api.cli import certificates
from gateway_api.cli.setup import is_document

_SECRET_BYTES = 32
_FACTORY = Path(__file__).parents[3] / "etc" / "factory.json"


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
        """Makes missing or incomplete files. Raises GatewayApiError and OSError."""
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
        """Holds a lock until this process ends: two cores would replace each other's socket."""
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
        """An empty file for the output of this run."""
        log = self.folder / "log"
        _write(log, "")
        return log

    def publish(self, url: str) -> None:
        """Writes shell assignments for scripts."""
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
    """The text after the start. Without a `log` it has no password: then its output may go to a log."""
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
