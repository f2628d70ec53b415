"""What the process is told from outside: environment variables and a credential, read once, at the start."""

import difflib
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gateway_api.base.errors import GatewayApiError

#: RFC 7518 section 3.2: a key of at least the hash's 256 bits.
RECOMMENDED_SECRET_BYTES = 32

# What PyJWT refuses to sign with, as public keys have been mistaken for secrets (CVE-2017-11424).
_ANOTHER_KEY = re.compile(rb"-----BEGIN |---- BEGIN |^\s*(ssh|ecdsa)-")

_SECRET = "SVC_API_SECRET"  # noqa: S105 - its name
# Of systemd's LoadCredential=: a folder that only the service can read.
_CREDENTIALS = "CREDENTIALS_DIRECTORY"


_PREFIX = "GATEWAY_API_"
#: Of this service, by their names without the prefix. Both profiles take all of them: they share one file.
_NAMES = (
    "AUDIT",
    "AUDIT_MEBIBYTES",
    "BIND",
    "CERTIFICATE",
    "KEY",
    "LOG_FORMAT",
    "LOG_LEVEL",
    "RUNTIME",
    "STATE",
    "TOKEN_AUDIT",
    "TOKEN_BEYOND_LOOPBACK",
    "TOKEN_RUNTIME",
    "TOKEN_WORKERS",
    "WEBHOOK_CERTIFICATES",
    "WORKERS",
)
_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
KNOWN = frozenset(_PREFIX + name for name in _NAMES)


class BadSetting(GatewayApiError):
    """An environment variable is missing or unusable; the text names it."""


def check_names(environment: Mapping[str, str]) -> None:
    """A misspelled variable would leave a setting at its default without a word. Raises BadSetting."""
    unknown = sorted(name for name in environment if name.startswith(_PREFIX) and name not in KNOWN)
    if unknown:
        raise BadSetting("; ".join(map(_is_unknown, unknown)))


def _is_unknown(name: str) -> str:
    nearest = difflib.get_close_matches(name.removeprefix(_PREFIX).upper(), _NAMES, n=1)
    return f"{name} is not a known variable" + (f"; did you mean {_PREFIX}{nearest[0]}?" if nearest else "")


def log_format(environment: Mapping[str, str]) -> str:
    """How log lines are written. Raises BadSetting."""
    chosen = environment.get("GATEWAY_API_LOG_FORMAT") or "keyvalue"
    if chosen not in ("keyvalue", "json"):
        raise BadSetting(f"GATEWAY_API_LOG_FORMAT must be keyvalue or json, not {chosen!r}")
    return chosen


def log_level(environment: Mapping[str, str]) -> int:
    """The least level that is logged, as `logging` numbers them. Raises BadSetting."""
    chosen = environment.get("GATEWAY_API_LOG_LEVEL") or "info"
    if chosen not in _LEVELS:
        raise BadSetting(f"GATEWAY_API_LOG_LEVEL must be one of {', '.join(_LEVELS)}, not {chosen!r}")
    return _LEVELS[chosen]


def _audit_mebibytes(environment: Mapping[str, str]) -> int:
    chosen = environment.get("GATEWAY_API_AUDIT_MEBIBYTES") or "64"
    if not re.fullmatch("[0-9]{1,4}", chosen, re.ASCII) or not 1 <= int(chosen) <= 1024:
        raise BadSetting(f"GATEWAY_API_AUDIT_MEBIBYTES must be 1 to 1024, not {chosen!r}")
    return int(chosen)


@dataclass(frozen=True)
class Settings:
    """`core_socket`: where the core daemon listens. `runtime`: a folder of this service alone, for
    what its workers share. `state`: one for what outlives a reboot. `secret`: signs the tokens, the same in
    all workers. `webhook_certificates`: a file with those that webhook receivers are trusted by, or None for
    the usual ones. `audit`: the audit log's folder, and `audit_size` the most bytes of each of its two
    trails; `token_audit`: the alternative profile's, which is read with it."""

    core_socket: Path
    runtime: Path
    secret: bytes = field(repr=False)
    state: Path = Path("/var/lib/gateway-api")
    webhook_certificates: str | None = None
    audit: Path = Path("/var/lib/gateway-api/audit")
    audit_size: int = 64 << 20
    token_audit: Path | None = None

    @property
    def hub_socket(self) -> Path:
        """Where the hub serves the workers."""
        return self.runtime / "hub.sock"

    @property
    def ledger(self) -> Path:
        """Where the workers keep what they must all know of logins."""
        return self.state / "logins.sqlite"

    @property
    def old_ledger(self) -> Path:
        """Where older versions kept it. They wrote the names of failed logins in clear."""
        return self.runtime / "ledger.sqlite"

    @property
    def metrics(self) -> Path:
        """The folder of what the workers count."""
        return self.runtime / "metrics"

    @property
    def secret_is_short(self) -> bool:
        return len(self.secret) < RECOMMENDED_SECRET_BYTES

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        check_names(environment)
        log_format(environment)
        log_level(environment)
        state = Path(environment.get("GATEWAY_API_STATE") or "/var/lib/gateway-api")
        return cls(
            core_socket=core_socket(environment),
            state=state,
            runtime=Path(environment.get("GATEWAY_API_RUNTIME") or "/run/gateway-api"),
            secret=_secret(environment),
            webhook_certificates=environment.get("GATEWAY_API_WEBHOOK_CERTIFICATES") or None,
            audit=Path(environment.get("GATEWAY_API_AUDIT") or state / "audit"),
            audit_size=_audit_mebibytes(environment) << 20,
            token_audit=_token_audit(environment),
        )


def has_secret(environment: Mapping[str, str]) -> bool:
    """Whether anything says what signs the tokens."""
    credential = _credential(environment)
    return bool(environment.get(_SECRET)) or (credential is not None and credential.exists())


def _secret(environment: Mapping[str, str]) -> bytes:
    """The variable's, or else the credential's."""
    secret = os.fsencode(environment.get(_SECRET, ""))
    credential = _credential(environment)
    if not secret and credential is not None:
        try:
            secret = credential.read_bytes().strip()
        except OSError as error:
            raise BadSetting(f"{_SECRET} is not set, and the credential can't be read: {error}") from error
    if not secret:
        raise BadSetting(f"{_SECRET} is not set")
    if _ANOTHER_KEY.search(secret):
        raise BadSetting(f"{_SECRET} is a key of another kind: HS256 signs with any other text")
    return secret


def _credential(environment: Mapping[str, str]) -> Path | None:
    folder = environment.get(_CREDENTIALS)
    return Path(folder) / "secret" if folder else None


@dataclass(frozen=True)
class TokenSettings:
    """Of the alternative profile. `core_socket`: where the core daemon listens. `beyond_loopback`: whether
    others than this machine may be listened to. `audit` and `audit_size` are as in `Settings`."""

    core_socket: Path
    beyond_loopback: bool
    audit: Path
    audit_size: int

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "TokenSettings":
        check_names(environment)
        log_level(environment)
        beyond = environment.get("GATEWAY_API_TOKEN_BEYOND_LOOPBACK") or "no"
        if beyond not in ("yes", "no"):
            raise BadSetting("GATEWAY_API_TOKEN_BEYOND_LOOPBACK must be yes or no")
        log_format(environment)
        return cls(
            core_socket=core_socket(environment),
            beyond_loopback=beyond == "yes",
            audit=_token_audit(environment),
            audit_size=_audit_mebibytes(environment) << 20,
        )


def _token_audit(environment: Mapping[str, str]) -> Path:
    return Path(environment.get("GATEWAY_API_TOKEN_AUDIT") or "/var/lib/gateway-api-token/audit")


def core_socket(environment: Mapping[str, str]) -> Path:
    """Where the core daemon listens."""
    return Path(environment.get("GATEWAY_CORE_SOCKET") or "/run/gateway-core/core.sock")
