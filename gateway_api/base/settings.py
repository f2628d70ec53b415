"""The two profiles of the API, and the settings of an operator: environment variables and a credential."""

import difflib
import os
import re
from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gateway_contract.base.variables import (
    NAMES,
    BadSetting,
    choice,
    core_socket,
    log_format,
    log_level,
    value,
)

#: A key of at least the hash's 256 bits (RFC 7518 section 3.2).
_RECOMMENDED_SECRET_BYTES = 32

# PyJWT rejects these: public keys have been mistaken for secrets (CVE-2017-11424).
_ANOTHER_KEY = re.compile(rb"-----BEGIN |---- BEGIN |^\s*(ssh|ecdsa)-")

_SECRET = "SVC_API_SECRET"  # noqa: S105 - its name
# From systemd's LoadCredential=.
_CREDENTIALS = "CREDENTIALS_DIRECTORY"

_BIND = re.compile(r"(\[[^\s\[\]]+\]|[^\s:\[\]]*):[0-9]{1,5}", re.ASCII)
_PREFIX = "GATEWAY_API_"
#: Both profiles accept all of them: they share one file.
KNOWN = frozenset(name for name in NAMES if name.startswith(_PREFIX))


def check_names(environment: Mapping[str, str]) -> None:
    """A misspelled variable would silently leave a setting at its default. Raises BadSetting."""
    unknown = sorted(name for name in environment if name.startswith(_PREFIX) and name not in KNOWN)
    if unknown:
        raise BadSetting("; ".join(map(_unknown_name, unknown)))


def _unknown_name(name: str) -> str:
    known = [each.removeprefix(_PREFIX) for each in sorted(KNOWN)]
    nearest = difflib.get_close_matches(name.removeprefix(_PREFIX).upper(), known, n=1)
    return f"{name} is not a known variable" + (f"; did you mean {_PREFIX}{nearest[0]}?" if nearest else "")


def bind(environment: Mapping[str, str]) -> str:
    """Address and port. gunicorn would take another port if there is none. Raises BadSetting."""
    chosen = value(environment, "GATEWAY_API_BIND")
    if not _BIND.fullmatch(chosen):
        raise BadSetting(
            f"GATEWAY_API_BIND must be ADDRESS:PORT, such as 10.255.0.1:8443 or [::1]:8443, not {chosen!r}"
        )
    return chosen


def _audit_mebibytes(environment: Mapping[str, str]) -> int:
    chosen = value(environment, "GATEWAY_API_AUDIT_MEBIBYTES")
    if not re.fullmatch("[0-9]{1,4}", chosen, re.ASCII) or not 1 <= int(chosen) <= 1024:
        raise BadSetting(f"GATEWAY_API_AUDIT_MEBIBYTES must be 1 to 1024, not {chosen!r}")
    return int(chosen)


@dataclass(frozen=True)
class Profile:
    """A way to serve the API."""

    #: Of the process, the unit and the folders below /run and /var/lib.
    name: str
    #: The function of `web.app` that makes the application.
    factory: str
    #: Variables of this profile only.
    runtime: str
    workers: str
    audit: str


#: HTTPS with a token that a user of the running configuration gets from a login.
USERS = Profile(
    name="gateway-api",
    factory="users",
    runtime="GATEWAY_API_RUNTIME",
    workers="GATEWAY_API_WORKERS",
    audit="GATEWAY_API_AUDIT",
)
#: Plain HTTP with the token `api.auth_token`, at the address of the running configuration.
TOKEN = Profile(
    name="gateway-api-token",
    factory="token",
    runtime="GATEWAY_API_TOKEN_RUNTIME",
    workers="GATEWAY_API_TOKEN_WORKERS",
    audit="GATEWAY_API_TOKEN_AUDIT",
)


@dataclass(frozen=True)
class Settings:
    """The settings of one profile."""

    core_socket: Path
    #: A folder that the workers of this service share.
    runtime: Path
    #: Signs the tokens of users, in all workers. Empty in the profile without users.
    secret: bytes = field(repr=False)
    #: A folder that outlives a reboot.
    state: Path = Path("/var/lib/gateway-api")
    #: The file with the TLS certificate of the API.
    certificate: Path = Path("/etc/gateway-api/tls/certificate.pem")
    #: A file with the certificate authorities of webhook receivers; None for those of the system.
    webhook_certificates: str | None = None
    #: The folder of the audit log, and the most bytes of each of its two trails.
    audit: Path = Path("/var/lib/gateway-api/audit")
    audit_size: int = 64 << 20
    #: The audit log of the alternative profile, which is read together with this one's.
    token_audit: Path | None = None
    profile: Profile = USERS
    #: Allows plain HTTP for other machines.
    beyond_loopback: bool = False

    @property
    def hub_socket(self) -> Path:
        return self.runtime / "hub.sock"

    @property
    def ledger(self) -> Path:
        """Revoked tokens and failed logins."""
        return self.state / "logins.sqlite"

    @property
    def history(self) -> Path:
        """The history of sessions."""
        return self.state / "history.sqlite"

    @property
    def metrics(self) -> Path:
        """The folder of the workers' counters."""
        return self.runtime / "metrics"

    @property
    def secret_is_short(self) -> bool:
        return len(self.secret) < _RECOMMENDED_SECRET_BYTES

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], profile: Profile = USERS) -> "Settings":
        """Raises BadSetting."""
        check_names(environment)
        bind(environment)
        log_format(environment)
        log_level(environment)
        has_users = profile is USERS
        state = Path(value(environment, "GATEWAY_API_STATE")) if has_users else Path("/var/lib", profile.name)
        return cls(
            profile=profile,
            core_socket=core_socket(environment),
            runtime=Path(value(environment, profile.runtime)),
            state=state,
            secret=_secret(environment) if has_users else b"",
            certificate=Path(value(environment, "GATEWAY_API_CERTIFICATE")),
            webhook_certificates=value(environment, "GATEWAY_API_WEBHOOK_CERTIFICATES") or None,
            audit=Path(environment.get(profile.audit) or state / "audit"),
            audit_size=_audit_mebibytes(environment) << 20,
            token_audit=Path(value(environment, TOKEN.audit)) if has_users else None,
            beyond_loopback=not has_users
            and choice(environment, "GATEWAY_API_TOKEN_BEYOND_LOOPBACK", "yes", "no") == "yes",
        )


def has_secret(environment: Mapping[str, str]) -> bool:
    """Return whether there is a variable or a credential with the secret."""
    credential = _credential(environment)
    return bool(environment.get(_SECRET)) or (credential is not None and credential.exists())


def _secret(environment: Mapping[str, str]) -> bytes:
    secret = os.fsencode(environment.get(_SECRET, ""))
    credential = _credential(environment)
    if not secret and credential is not None:
        try:
            secret = credential.read_bytes().removeprefix(BOM_UTF8).strip()
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
