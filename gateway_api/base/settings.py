"""The two ways to serve the API, and what an operator sets: environment variables and a credential."""

import difflib
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from gateway_api.base.errors import GatewayApiError

#: RFC 7518 section 3.2: a key of at least the hash's 256 bits.
RECOMMENDED_SECRET_BYTES = 32

# PyJWT rejects these: public keys have been mistaken for secrets (CVE-2017-11424).
_ANOTHER_KEY = re.compile(rb"-----BEGIN |---- BEGIN |^\s*(ssh|ecdsa)-")

_SECRET = "SVC_API_SECRET"  # noqa: S105 - its name
# From systemd's LoadCredential=: a folder that only the service can read.
_CREDENTIALS = "CREDENTIALS_DIRECTORY"

_PREFIX = "GATEWAY_API_"
#: The known variables without the prefix. Both profiles accept all of them: they share one file.
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
        raise BadSetting("; ".join(map(_unknown_name, unknown)))


def _unknown_name(name: str) -> str:
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


class Authentication(Enum):
    """The credential of a request."""

    #: A token that a user of the running configuration gets from a login.
    USER_TOKEN = "token of a user"  # noqa: S105 - not a secret
    #: `api.auth_token` of the running configuration.
    STATIC_TOKEN = "static token"  # noqa: S105 - not a secret


@dataclass(frozen=True)
class Profile:
    """A way to serve the API. The arbiter reads this value and must not import Flask, so the value only names
    the application. `web/app.py` has the routes of each profile."""

    #: Of the process, the unit and the folders below /run and /var/lib.
    name: str
    #: Its factory, as gunicorn spells it. Workers import it.
    application: str
    authentication: Authentication
    #: With TLS, where GATEWAY_API_BIND sets nothing else. None: plain HTTP at `api.listen_address` and
    #: `api.listen_port` of the running configuration.
    bind: str | None
    #: The variables that each profile has for itself.
    runtime: str
    workers: str
    audit: str


USERS = Profile(
    name="gateway-api",
    application="gateway_api.web.app:users()",
    authentication=Authentication.USER_TOKEN,
    bind="0.0.0.0:8443",
    runtime="GATEWAY_API_RUNTIME",
    workers="GATEWAY_API_WORKERS",
    audit="GATEWAY_API_AUDIT",
)
TOKEN = Profile(
    name="gateway-api-token",
    application="gateway_api.web.app:token()",
    authentication=Authentication.STATIC_TOKEN,
    bind=None,
    runtime="GATEWAY_API_TOKEN_RUNTIME",
    workers="GATEWAY_API_TOKEN_WORKERS",
    audit="GATEWAY_API_TOKEN_AUDIT",
)


@dataclass(frozen=True)
class Settings:
    """What an operator sets, for one profile."""

    #: Where the core daemon listens.
    core_socket: Path
    #: A folder that the workers of this service share.
    runtime: Path
    #: Signs the tokens of users, in all workers. Empty in the profile without users.
    secret: bytes = field(repr=False)
    #: A folder that outlives a reboot.
    state: Path = Path("/var/lib/gateway-api")
    #: A file with the certificates that webhook receivers are trusted by; None for those of the system.
    webhook_certificates: str | None = None
    #: The folder of the audit log, and the most bytes of each of its two trails.
    audit: Path = Path("/var/lib/gateway-api/audit")
    audit_size: int = 64 << 20
    #: The audit log of the other profile, which is read together with this one's.
    token_audit: Path | None = None
    profile: Profile = USERS
    #: Whether plain HTTP may listen to other machines.
    beyond_loopback: bool = False

    @property
    def hub_socket(self) -> Path:
        return self.runtime / "hub.sock"

    @property
    def ledger(self) -> Path:
        """Revoked tokens and failed logins."""
        return self.state / "logins.sqlite"

    @property
    def old_ledger(self) -> Path:
        """The ledger of older versions, which has the names of failed logins in clear."""
        return self.runtime / "ledger.sqlite"

    @property
    def metrics(self) -> Path:
        """The folder of the workers' counters."""
        return self.runtime / "metrics"

    @property
    def secret_is_short(self) -> bool:
        return len(self.secret) < RECOMMENDED_SECRET_BYTES

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], profile: Profile = USERS) -> "Settings":
        """Raises BadSetting."""
        check_names(environment)
        log_format(environment)
        log_level(environment)
        has_users = profile.authentication is Authentication.USER_TOKEN

        def folder(variable: str, default: str | Path) -> Path:
            return Path(environment.get(variable) or default)

        state = Path("/var/lib", profile.name)
        if has_users:
            state = folder("GATEWAY_API_STATE", state)
        return cls(
            profile=profile,
            core_socket=core_socket(environment),
            runtime=folder(profile.runtime, f"/run/{profile.name}"),
            state=state,
            secret=_secret(environment) if has_users else b"",
            webhook_certificates=environment.get("GATEWAY_API_WEBHOOK_CERTIFICATES") or None,
            audit=folder(profile.audit, state / "audit"),
            audit_size=_audit_mebibytes(environment) << 20,
            token_audit=folder(TOKEN.audit, f"/var/lib/{TOKEN.name}/audit") if has_users else None,
            beyond_loopback=not has_users and _beyond_loopback(environment),
        )


def _beyond_loopback(environment: Mapping[str, str]) -> bool:
    chosen = environment.get("GATEWAY_API_TOKEN_BEYOND_LOOPBACK") or "no"
    if chosen not in ("yes", "no"):
        raise BadSetting("GATEWAY_API_TOKEN_BEYOND_LOOPBACK must be yes or no")
    return chosen == "yes"


def has_secret(environment: Mapping[str, str]) -> bool:
    """Whether the environment has a secret that signs the tokens."""
    credential = _credential(environment)
    return bool(environment.get(_SECRET)) or (credential is not None and credential.exists())


def _secret(environment: Mapping[str, str]) -> bytes:
    """From the variable, or else from the credential."""
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


def core_socket(environment: Mapping[str, str]) -> Path:
    """Where the core daemon listens."""
    return Path(environment.get("GATEWAY_CORE_SOCKET") or "/run/gateway-core/core.sock")
