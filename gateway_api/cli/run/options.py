"""What the caller of `make run` can set, and what it is told when that can't be."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway_api.base.errors import GatewayApiError


class CannotRun(GatewayApiError):
    """What is in the way, in one sentence."""


@dataclass(frozen=True)
class Wishes:
    """What the caller can set, from environment variables of the same names. `arrivals` is a second."""

    port: int
    sessions: int
    arrivals: float
    workers: int
    state: Path

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Wishes":
        def number(name: str, default: str, least: float, most: float) -> float:
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
