"""FRR's BGP neighbours and routes, as vtysh prints them. Read in FRR 8.4.4 of Debian 12 and 10.3 of
Debian 13.

No value of a request or of a configuration is on a command line of vtysh: it would read its syntax in it.
"""

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from gateway_api.base.errors import GatewayApiError
from gateway_api.core.gateways.linux.program import ProgramFailed, run
from gateway_api.wire.core.network import Route

T = TypeVar("T")

#: Bytes of a reply: enough for about 90,000 routes.
_MOST = 64 * 2**20

_SUMMARY, _ROUTES = "read the BGP summary of FRR", "read the routes of FRR"
_SHOW_ROUTES = ("show ip route vrf all json", "show ipv6 route vrf all json")

#: Linux's table `main` (rt_tables).
_MAIN = 254
#: The metric of all routes that zebra makes (NL_DEFAULT_ROUTE_METRIC).
_ZEBRA_METRIC = 20
#: FRR's words for a network of an interface, for the host's own address in it (FRR 10), and for a route that
#: another program made.
_CONNECTED, _LOCAL, _KERNEL = "connected", "local", "kernel"
_FOUND = (_CONNECTED, _KERNEL)
_UNICAST = "unicast"


class RoutingUnavailable(GatewayApiError):
    """FRR, or the daemon of it that was asked, does not run or gave no usable reply. The reason is FRR's own
    line if there is one; it has no secret."""

    def __init__(self, step: str, reason: str) -> None:
        #: A verb and an object.
        self.step = step
        self.reason = reason
        super().__init__(f"cannot {step}: {reason}")


@dataclass(frozen=True)
class FrrFolders:
    """Where an FRR is: `programs` has vtysh, `tools` has frr-reload.py, `configuration` has frr.conf and
    vtysh.conf, `sockets` those of the daemons."""

    programs: Path = Path("/usr/bin")
    tools: Path = Path("/usr/lib/frr")
    configuration: Path = Path("/etc/frr")
    sockets: Path = Path("/run/frr")


class Frr:
    """FRR's daemons, any of which may be down or hang. `seconds` is the limit of a method: 10,000 routes take
    one second. Any thread may call."""

    def __init__(self, folders: FrrFolders, seconds: float) -> None:
        self._folders = folders
        self._seconds = seconds

    def bgp_summary(self) -> dict[str, Any]:
        """The JSON object of `show bgp summary json`, which is empty if FRR has no BGP. Raises
        RoutingUnavailable, also if bgpd does not run."""
        printed = self._show(_SUMMARY, "bgpd", "show bgp summary json")
        # A neighbour chooses its host name, and FRR prints its bytes as they came.
        return _decoded(_SUMMARY, printed.decode(errors="replace"), dict[str, Any])

    def routes(self) -> tuple[Route, ...]:
        """The routes of all VRFs that zebra has put into the kernel or found there, IPv4 before IPv6, one for
        each next hop, without a session. `protocol` is FRR's word, but `kernel` for a network of an
        interface: so FRR calls a route of any other program. Raises RoutingUnavailable."""
        return parsed_routes(self._show(_ROUTES, "zebra", *_SHOW_ROUTES))

    def _show(self, step: str, daemon: str, *commands: str) -> bytes:
        # Only to the daemon that has the reply: one that hangs must not block the others.
        command = [*vtysh(self._folders), "-d", daemon]
        for each in commands:
            command += ["-c", each]
        try:
            ended = run(command, seconds=self._seconds, most=_MOST)
        except ProgramFailed as error:
            raise RoutingUnavailable(step, str(error)) from error
        if ended.status:
            said = last_line(ended.output + b"\n" + ended.errors)
            raise RoutingUnavailable(step, f"{daemon}: {said or f'vtysh ended with status {ended.status}'}")
        return ended.output


def vtysh(folders: FrrFolders) -> list[str]:
    """The beginning of a command."""
    program = str(folders.programs / "vtysh")
    return [program, "--config_dir", str(folders.configuration), "--vty_socket", str(folders.sockets)]


def last_line(printed: bytes) -> str:
    """The last line with text, shortened and printable."""
    lines = [line for line in printed.decode("ascii", "replace").splitlines() if line.strip()]
    # vtysh ends with one for every user but root.
    lines = [line for line in lines if not line.startswith("Hint:")]
    return printable(lines[-1]) if lines else ""


def printable(line: str) -> str:
    return re.sub(r"[^ -~]+", "?", line.strip())[:200]


class _NextHop(msgspec.Struct, frozen=True, rename="camel"):
    fib: bool = False
    ip: str | None = None
    interface_name: str = ""
    source: str | None = None
    blackhole: bool = False
    reject: bool = False
    admin_prohibited: bool = msgspec.field(default=False, name="admin-prohibited")

    @property
    def type(self) -> str:
        """As iproute2 names it."""
        if self.blackhole:
            return "blackhole"
        if self.reject:
            return "unreachable"
        return "prohibit" if self.admin_prohibited else _UNICAST


class _RibRoute(msgspec.Struct, frozen=True):
    prefix: str
    protocol: str
    table: int
    distance: Annotated[int, Meta(ge=0, le=255)]
    metric: Annotated[int, Meta(ge=0, lt=1 << 32)]
    selected: bool = False
    nexthops: tuple[_NextHop, ...] = ()

    @property
    def kernel_metric(self) -> int | None:
        if self.protocol not in _FOUND:
            return _ZEBRA_METRIC
        # zebra takes the high byte of the kernel's metric for a distance.
        return self.distance << 24 | self.metric or None

    def is_in_kernel(self, hop: _NextHop) -> bool:
        """Not so: a route that another one beats, and a next hop that stands for those that follow it. Of the
        same network on two interfaces only one is selected, but the kernel has both."""
        return hop.fib and (self.selected or self.protocol == _CONNECTED) and self.protocol != _LOCAL


_Ribs = tuple[_RibRoute, ...]


def parsed_routes(printed: bytes) -> tuple[Route, ...]:
    """The routes of the JSON of one or more `show ip route vrf all json`. Raises RoutingUnavailable."""
    return tuple(
        _route(rib, hop)
        for prefixes in _of_each_vrf(printed)
        for ribs in prefixes.values()
        for rib in ribs
        for hop in rib.nexthops
        if rib.is_in_kernel(hop)
    )


def _of_each_vrf(printed: bytes) -> Iterator[dict[str, _Ribs]]:
    """The routes by prefix. FRR 8 prints an object for each VRF; FRR 10 one for all, by the VRFs' names."""
    # Only the outermost bracket is at the beginning of a line.
    for text in re.split(rb"^(?=\{)", printed, flags=re.MULTILINE):
        if text.strip():
            found = _decoded(_ROUTES, text, dict[str, _Ribs | dict[str, _Ribs]])
            yield {prefix: ribs for prefix, ribs in found.items() if isinstance(ribs, tuple)}
            yield from (prefixes for prefixes in found.values() if isinstance(prefixes, dict))


def _route(rib: _RibRoute, hop: _NextHop) -> Route:
    network, _, length = rib.prefix.partition("/")
    family = socket.AF_INET6 if ":" in network else socket.AF_INET
    _check_address(family, network)
    if not (re.fullmatch(r"[0-9]{1,3}", length) and int(length) <= (128 if ":" in network else 32)):
        raise RoutingUnavailable(_ROUTES, f"{printable(rib.prefix)} is not a prefix")
    for address in filter(None, (hop.ip, hop.source)):
        _check_address(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    # iproute2 names a scope for IPv4 only. What zebra makes itself is global, without a gateway too.
    is_link = family == socket.AF_INET and rib.protocol in _FOUND and hop.ip is None and hop.type == _UNICAST
    return Route(
        dst=rib.prefix,
        gateway=hop.ip,
        dev=hop.interface_name,
        protocol="kernel" if rib.protocol == _CONNECTED else rib.protocol,
        scope="link" if is_link else "global",
        type=hop.type,
        table="main" if rib.table == _MAIN else str(rib.table),
        metric=rib.kernel_metric,
        prefsrc=hop.source,
        session_id=None,
    )


def _check_address(family: int, text: str) -> None:
    try:
        socket.inet_pton(family, text)
    except (OSError, ValueError) as error:
        raise RoutingUnavailable(_ROUTES, f"{printable(text)} is not an address") from error


def _decoded(step: str, text: str | bytes, type: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=type)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise RoutingUnavailable(step, f"its reply is not as expected: {printable(str(error))}") from error
