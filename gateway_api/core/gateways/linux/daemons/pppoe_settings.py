"""The settings of each pppoe-server on disk: a file for each access interface.

    100.64.0.1 100.64.0.16 secrets bng1
    192.0.2.53 192.0.2.54

The gateway's address, the first of the 16 addresses to give away, how subscribers are authenticated, and the
name of the access concentrator. The DNS servers have a second line, if there are any: a server that still
runs by the program of before an upgrade reads only the first. packaging/pppoe/server, which is root, reads
them. It takes no options and no file for pppd: with those, the core would be root too.
"""

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path

from gateway_api.base import durable
from gateway_api.core.configuration.sections import Configuration

#: A name of an access interface ends with a number, so that a draft of `durable` is none.
_DRAFT = ".new"
_SECRETS, _RADIUS = "secrets", "radius"
_LINES = re.compile(
    rf"([0-9.]+) ([0-9.]+) ({_SECRETS}|{_RADIUS}) ([A-Za-z0-9.-]+)\n(?:([0-9.]+(?: [0-9.]+)?)\n)?"
)


@dataclass(frozen=True)
class PppoeSettings:
    """Those of one pppoe-server."""

    gateway: IPv4Address
    first: IPv4Address
    has_radius: bool
    access_concentrator: str
    dns_servers: tuple[IPv4Address, ...]

    @classmethod
    def of(cls, configuration: Configuration, first: IPv4Address) -> "PppoeSettings":
        return cls(
            configuration.cgnat.subscriber_gateway,
            first,
            configuration.radius.server is not None,
            configuration.system.hostname,
            configuration.subscribers.dns_servers,
        )

    @classmethod
    def parse(cls, text: str) -> "PppoeSettings | None":
        """None for what the core did not write."""
        parts = _LINES.fullmatch(text)
        if parts is None:
            return None
        try:
            dns_servers = tuple(map(IPv4Address, (parts[5] or "").split()))
            gateway, first = IPv4Address(parts[1]), IPv4Address(parts[2])
        except AddressValueError:
            return None
        return cls(gateway, first, parts[3] == _RADIUS, parts[4], dns_servers)

    def __str__(self) -> str:
        auth = _RADIUS if self.has_radius else _SECRETS
        dns_servers = " ".join(map(str, self.dns_servers))
        lines = (f"{self.gateway} {self.first} {auth} {self.access_concentrator}", dns_servers)
        return "".join(f"{line}\n" for line in lines if line)


class SettingsFolder:
    """The files. They outlive the core, as the sessions do. All methods raise OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self) -> dict[str, PppoeSettings | None]:
        """By access interface; None for one whose file is not readable as such."""
        try:
            names = [path.name for path in self._folder.iterdir() if not path.name.endswith(_DRAFT)]
        except FileNotFoundError:
            return {}
        return {name: PppoeSettings.parse(self._text(name)) for name in names}

    def write(self, interface: str, settings: PppoeSettings) -> None:
        durable.make_folder(self._folder)
        durable.replace(self._folder / interface, str(settings).encode())

    def remove(self, interface: str) -> None:
        (self._folder / interface).unlink(missing_ok=True)

    def _text(self, interface: str) -> str:
        return (self._folder / interface).read_bytes().decode("ascii", "replace")
