"""Settings of the API, from environment variables and a credential, and the two profiles of the API."""

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

#: As many bytes as the hash of HS256 (RFC 7518 section 3.2).
_RECOMMENDED_SECRET_BYTES = 32

#: Prefixes of keys that PyJWT rejects: public keys have been mistaken for secrets (CVE-2017-11424).
_FOREIGN_KEY_PATTERN = re.compile(rb"-----BEGIN |---- BEGIN |^\s*(ssh|ecdsa)-")

_SECRET_VARIABLE = "SVC_API_SECRET"  # noqa: S105 - its name
#: Variable that contains the folder of systemd's LoadCredential=.
_CREDENTIALS_VARIABLE = "CREDENTIALS_DIRECTORY"

_BIND_PATTERN = re.compile(r"(\[[^\s\[\]]+\]|[^\s:\[\]]*):[0-9]{1,5}", re.ASCII)
_VARIABLE_PREFIX = "GATEWAY_API_"
#: Variables that both profiles accept, as they share one file.
KNOWN_VARIABLES = frozenset(name for name in NAMES if name.startswith(_VARIABLE_PREFIX))


def _check_names(environment: Mapping[str, str]) -> None:
    """Raise BadSetting if the environment has an unknown variable of the API. If a name is misspelled, the
    setting would otherwise silently have its default value."""
    unknown = sorted(
        name for name in environment if name.startswith(_VARIABLE_PREFIX) and name not in KNOWN_VARIABLES
    )
    if unknown:
        raise BadSetting("; ".join(map(_describe_unknown, unknown)))


def _describe_unknown(name: str) -> str:
    known = [each.removeprefix(_VARIABLE_PREFIX) for each in sorted(KNOWN_VARIABLES)]
    nearest = difflib.get_close_matches(name.removeprefix(_VARIABLE_PREFIX).upper(), known, n=1)
    return f"{name} is not a known variable" + (
        f"; did you mean {_VARIABLE_PREFIX}{nearest[0]}?" if nearest else ""
    )


def _check_bind(environment: Mapping[str, str]) -> None:
    """Raise BadSetting if GATEWAY_API_BIND is not an address with a port. If the port is missing, gunicorn
    would choose a port itself."""
    text = value(environment, "GATEWAY_API_BIND")
    if not _BIND_PATTERN.fullmatch(text):
        raise BadSetting(
            f"GATEWAY_API_BIND must be ADDRESS:PORT, such as 10.255.0.1:8443 or [::1]:8443, not {text!r}"
        )


def _read_audit_mebibytes(environment: Mapping[str, str]) -> int:
    text = value(environment, "GATEWAY_API_AUDIT_MEBIBYTES")
    if not re.fullmatch("[0-9]{1,4}", text, re.ASCII) or not 1 <= int(text) <= 1024:
        raise BadSetting(f"GATEWAY_API_AUDIT_MEBIBYTES must be 1 to 1024, not {text!r}")
    return int(text)


@dataclass(frozen=True)
class Profile:
    """Profile of the API: the name and the application of one of the two variants in which the API runs."""

    #: Name of the process, the unit and the folders below /run and /var/lib.
    name: str
    #: Function of `web.app` that makes the application.
    factory: str

    @property
    def prefix(self) -> str:
        """Prefix of the environment variables that only this profile reads."""
        return self.name.upper().replace("-", "_")


#: HTTPS with a token that a user of the running configuration gets from a login.
USERS = Profile("gateway-api", "make_users_app")
#: Plain HTTP with the token `api.auth_token`, at the address of the running configuration.
TOKEN = Profile("gateway-api-token", "make_token_app")


@dataclass(frozen=True)
class Settings:
    """Settings of one profile."""

    core_socket: Path
    #: Folder that the workers of this service share.
    runtime: Path
    #: Secret that signs the tokens of users, in all workers. Empty in the profile without users.
    secret: bytes = field(repr=False)
    #: Folder that survives a reboot.
    state: Path = Path("/var/lib/gateway-api")
    #: File with the TLS certificate of the API.
    certificate: Path = Path("/etc/gateway-api/tls/certificate.pem")
    #: File with the certificate authorities of webhook receivers; None for the authorities of the system.
    webhook_certificates: str | None = None
    #: Folder of the audit log, and the maximum bytes of each of its two trails.
    audit: Path = Path("/var/lib/gateway-api/audit")
    max_audit_bytes: int = 64 << 20
    #: Folder of the alternative profile's audit log, which is read together with this profile's.
    token_audit: Path | None = None
    profile: Profile = USERS
    #: Whether plain HTTP is allowed for other machines.
    beyond_loopback: bool = False

    @property
    def hub_socket(self) -> Path:
        return self.runtime / "hub.sock"

    @property
    def ledger(self) -> Path:
        """Path of the database of revoked tokens and failed logins."""
        return self.state / "logins.sqlite"

    @property
    def history(self) -> Path:
        """Path of the database of the history of sessions."""
        return self.state / "history.sqlite"

    @property
    def metrics(self) -> Path:
        """Path of the folder with the counter files of the workers."""
        return self.runtime / "metrics"

    @property
    def has_short_secret(self) -> bool:
        return len(self.secret) < _RECOMMENDED_SECRET_BYTES

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], profile: Profile = USERS) -> "Settings":
        """Return the settings of a profile from environment variables. Raises BadSetting if a variable is
        unknown or has an invalid value."""
        _check_names(environment)
        _check_bind(environment)
        log_format(environment)
        log_level(environment)
        has_users = profile is USERS
        state = Path(value(environment, "GATEWAY_API_STATE")) if has_users else Path("/var/lib", profile.name)
        return cls(
            profile=profile,
            core_socket=core_socket(environment),
            runtime=Path(value(environment, f"{profile.prefix}_RUNTIME")),
            state=state,
            secret=_read_secret(environment) if has_users else b"",
            certificate=Path(value(environment, "GATEWAY_API_CERTIFICATE")),
            webhook_certificates=value(environment, "GATEWAY_API_WEBHOOK_CERTIFICATES") or None,
            audit=Path(environment.get(f"{profile.prefix}_AUDIT") or state / "audit"),
            max_audit_bytes=_read_audit_mebibytes(environment) << 20,
            token_audit=Path(value(environment, "GATEWAY_API_TOKEN_AUDIT")) if has_users else None,
            beyond_loopback=not has_users
            and choice(environment, "GATEWAY_API_TOKEN_BEYOND_LOOPBACK", "yes", "no") == "yes",
        )


def has_secret(environment: Mapping[str, str]) -> bool:
    """Return True if an environment variable or a systemd credential contains the secret."""
    credential = _find_credential(environment)
    return bool(environment.get(_SECRET_VARIABLE)) or (credential is not None and credential.exists())


def _read_secret(environment: Mapping[str, str]) -> bytes:
    secret = os.fsencode(environment.get(_SECRET_VARIABLE, ""))
    credential = _find_credential(environment)
    if not secret and credential is not None:
        try:
            secret = credential.read_bytes().removeprefix(BOM_UTF8).strip()
        except OSError as error:
            raise BadSetting(
                f"{_SECRET_VARIABLE} is not set, and the credential can't be read: {error}"
            ) from error
    if not secret:
        raise BadSetting(f"{_SECRET_VARIABLE} is not set")
    if _FOREIGN_KEY_PATTERN.search(secret):
        raise BadSetting(f"{_SECRET_VARIABLE} is a key of another kind: HS256 signs with any other text")
    return secret


def _find_credential(environment: Mapping[str, str]) -> Path | None:
    folder = environment.get(_CREDENTIALS_VARIABLE)
    return Path(folder) / "secret" if folder else None
