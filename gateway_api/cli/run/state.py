"""What is kept from one run to the next: certificate, users, configuration, secret."""

import fcntl
import json
import os
import secrets
import shlex
from pathlib import Path

from gateway_api.auth.passwords import hash_password
from gateway_api.base import durable
from gateway_api.cli import certificates
from gateway_api.cli.run.options import CannotRun

_SECRET_BYTES = 32
ETC = Path(__file__).parents[3] / "etc"


class State:
    """The folder with all that is kept from one run to the next."""

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
        """Makes what isn't there yet. Raises CannotRun."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if len(os.fsencode(self.core_socket)) > 107:  # sockaddr_un's room, less the NUL
            raise CannotRun(
                f"the path {self.core_socket} is too long for a socket; set STATE to a shorter one"
            )
        self._lock()
        self.core_socket.unlink(missing_ok=True)
        # From the last run: who waits for this file must not read it before it is true again.
        self.environment.unlink(missing_ok=True)
        self._prepare_certificate()
        if not (self._secret.exists() and len(self.secret) >= _SECRET_BYTES):
            _write(self._secret, secrets.token_hex(_SECRET_BYTES))
        if not _is_document(self._passwords):
            if (self.configuration / "state.json").exists():
                raise CannotRun(
                    f"{self._passwords} is lost, and what runs knows the users by the former passwords; "
                    f"remove the folder {self.configuration} to start afresh"
                )
            # It has hashes of the former ones. Gone first, or a kill in between would leave it for good.
            self.factory.unlink(missing_ok=True)
            _write(self._passwords, json.dumps({u: secrets.token_urlsafe(12) for u in ("admin", "operator")}))
        if not _is_document(self.factory):
            _write(self.factory, json.dumps(self._factory_configuration(), indent=2) + "\n")

    def _lock(self) -> None:
        """Until this process ends: two cores at one socket would take each other's place."""
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
        """An empty file for what this run writes."""
        log = self.folder / "log"
        _write(log, "")
        return log

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
        document = json.loads((ETC / "factory.json").read_text())
        document["radius"]["secret"] = secrets.token_urlsafe(16)
        document["api"]["users"] = [
            {"username": user, "password_hash": hash_password(password), "role": user}
            for user, password in self.passwords.items()
        ]
        return document

    def _prepare_certificate(self) -> None:
        try:
            certificates.ensure(self.certificate, self.key, "localhost")
            if not certificates.is_ours(self.certificate):
                # What was made here once could sign for any name.
                self.certificate.unlink()
                certificates.ensure(self.certificate, self.key, "localhost")
            certificates.renew(self.certificate, self.key, "localhost")
        except certificates.NoCertificate as error:
            raise CannotRun(str(error)) from error


def _write(path: Path, text: str) -> None:
    """Whole or not at all, and for our own eyes."""
    durable.replace(path, text.encode())


def _is_document(path: Path) -> bool:
    """Whether it is JSON: a power cut may have left a file without what was written."""
    try:
        return bool(json.loads(path.read_bytes()))
    except (FileNotFoundError, ValueError):
        return False
