"""The configuration of a commit that waits for its confirmation: with the range of the one that may return.

A home with DHCP learns of another range only when it renews its lease, minutes later. The return of the
former configuration restores the service of such a home at once only if its session still exists. So until
the confirmation, the gateway also serves the sessions that have an address of the former range.
"""

from dataclasses import dataclass, fields, replace
from ipaddress import IPv4Network
from typing import Any

from gateway_contract.configuration import Cgnat, Configuration


@dataclass(frozen=True, kw_only=True)
class UnconfirmedCgnat(Cgnat):
    """The section `cgnat` until the confirmation. `former_range` is that of the configuration that may
    return."""

    former_range: IPv4Network

    @property
    def source_ranges(self) -> tuple[IPv4Network, ...]:
        return self.source_range, self.former_range


def former_range(configuration: Configuration) -> IPv4Network | None:
    """Return the range that is served beside `cgnat.source_range`; None for none."""
    cgnat = configuration.cgnat
    return cgnat.former_range if isinstance(cgnat, UnconfirmedCgnat) else None


def until_confirmed(configuration: Configuration, former: IPv4Network) -> Configuration:
    """Return a configuration as it runs until its confirmation."""
    cgnat = configuration.cgnat
    if cgnat.source_range == former:
        return configuration
    return replace(configuration, cgnat=UnconfirmedCgnat(**_values(cgnat), former_range=former))


def as_confirmed(configuration: Configuration) -> Configuration:
    """Return a configuration as it runs after its confirmation."""
    return replace(configuration, cgnat=Cgnat(**_values(configuration.cgnat)))


def _values(cgnat: Cgnat) -> dict[str, Any]:
    return {field.name: getattr(cgnat, field.name) for field in fields(Cgnat)}
