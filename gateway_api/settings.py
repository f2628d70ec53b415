"""What the process is told from outside: environment variables, read once, at the start."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gateway_api.errors import GatewayApiError

#: RFC 7518 section 3.2: a key of at least the hash's 256 bits.
RECOMMENDED_SECRET_BYTES = 32


# What PyJWT refuses to sign with, as public keys have been mistaken for secrets (CVE-2017-11424).
_ANOTHER_KEY = re.compile(rb"-----BEGIN |---- BEGIN |^\s*(ssh|ecdsa)-")


class BadSetting(GatewayApiError):
    """An environment variable is missing or unusable; the text names it."""


def log_format(environment: Mapping[str, str]) -> str:
    """How log lines are written. Raises BadSetting."""
    chosen = environment.get("GATEWAY_API_LOG_FORMAT") or "keyvalue"
    if chosen not in ("keyvalue", "json"):
        raise BadSetting(f"GATEWAY_API_LOG_FORMAT must be keyvalue or json, not {chosen!r}")
    return chosen


def _audit_mebibytes(environment: Mapping[str, str]) -> int:
    chosen = environment.get("GATEWAY_API_AUDIT_MEBIBYTES") or "64"
    if not re.fullmatch("[1-9][0-9]{0,3}", chosen, re.ASCII):
        raise BadSetting(f"GATEWAY_API_AUDIT_MEBIBYTES must be 1 to 9999, not {chosen!r}")
    return int(chosen)


@dataclass(frozen=True)
class Settings:
    """`core_socket`: where the core daemon listens. `runtime`: a folder of this service alone, for
    what its workers share. `secret`: signs the tokens, the same in all workers. `webhook_certificates`:
    a file with those that webhook receivers are trusted by, or None for the usual ones. `audit`: the
    audit log's folder, and `audit_size` the most bytes of each of its two trails."""

    core_socket: Path
    runtime: Path
    secret: bytes = field(repr=False)
    webhook_certificates: str | None = None
    audit: Path = Path("/var/lib/gateway-api/audit")
    audit_size: int = 64 << 20

    @property
    def hub_socket(self) -> Path:
        """Where the hub serves the workers."""
        return self.runtime / "hub.sock"

    @property
    def ledger(self) -> Path:
        """Where the workers keep what they must all know of logins."""
        return self.runtime / "ledger.sqlite"

    @property
    def secret_is_short(self) -> bool:
        return len(self.secret) < RECOMMENDED_SECRET_BYTES

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        def required(name: str) -> str:
            value = environment.get(name, "")
            if not value:
                raise BadSetting(f"{name} is not set")
            return value

        secret = os.fsencode(required("SVC_API_SECRET"))
        if _ANOTHER_KEY.search(secret):
            raise BadSetting("SVC_API_SECRET is a key of another kind: HS256 signs with any other text")
        log_format(environment)
        return cls(
            core_socket=Path(environment.get("GATEWAY_CORE_SOCKET") or "/run/gateway-core/core.sock"),
            runtime=Path(environment.get("GATEWAY_API_RUNTIME") or "/run/gateway-api"),
            secret=secret,
            webhook_certificates=environment.get("GATEWAY_API_WEBHOOK_CERTIFICATES") or None,
            audit=Path(environment.get("GATEWAY_API_AUDIT") or "/var/lib/gateway-api/audit"),
            audit_size=_audit_mebibytes(environment) << 20,
        )
