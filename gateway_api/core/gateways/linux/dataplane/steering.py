"""Steers sessions to a CGNAT appliance, by policy rules and a routing table.

What arrives from a steered session goes by the table: `ip rule iif DEVICE lookup TABLE`. The table has the
route to the appliance, and a host route for each steered address, without which replies are lost. The link
itself stays as it is: to enslave it to a VRF would take it down and up.
"""

import errno
from ipaddress import IPv4Address
from typing import Any

from gateway_api.core.gateways.linux.netlink.fib import OWN_PROTOCOL, RouteEntry
from gateway_api.core.gateways.linux.netlink.kernel import Kernel, unless
from gateway_api.core.gateways.linux.netlink.messages import NoDevice
from gateway_api.core.gateways.linux.netlink.reader import Reader
from gateway_api.wire.contract import Record
from gateway_api.wire.core.network import AddressFamily

#: Of the rules: before the main table (32766), behind local addresses (0) and VRFs (1000).
_PRIORITY = 1500
_DEFAULT_ROUTE = "0.0.0.0/0"
_HOST = 32


class SteeringState(Record, frozen=True):
    """What steers now, of what this module adds, devices that are gone included."""

    #: Table by name of the device.
    rules: dict[str, int]
    #: Index of the device by address.
    host_routes: dict[str, int]
    #: The appliance's address and the index of the device to it; None without a route.
    handoff: tuple[str, int] | None


class Steering:
    """Steers sessions by one table. Any thread may call. Methods raise KernelError.

    The kernel compares each packet of each session with all rules, one after the other: 1,000 rules add 3 us
    to a packet, 10,000 add 55 us.
    """

    def __init__(self, kernel: Kernel, reader: Reader, table: int) -> None:
        self._kernel = kernel
        self._reader = reader
        self._table = table

    def hand_off(self, interface: str, gateway: IPv4Address) -> None:
        """Sets the route to the appliance. Raises NoDevice for an unknown interface."""
        index = self._reader.link(interface).index
        self._kernel.change(
            f"route table {self._table} to {gateway} on {interface}",
            lambda ip: ip.route(
                "replace", dst=_DEFAULT_ROUTE, gateway=str(gateway), oif=index, **self._marks()
            ),
        )

    def steer(self, interface: str, address: IPv4Address) -> None:
        """Steers a session. Does nothing for what is there already; an address moves to this device."""
        index = self._reader.link(interface).index

        def add(ip: Any) -> None:
            # The host route first: with the rule alone, replies would be lost.
            ip.route("replace", dst=f"{address}/{_HOST}", oif=index, scope="link", **self._marks())
            unless(errno.EEXIST, change=lambda: ip.rule("add", **self._rule(interface)))

        self._kernel.change(f"steer {interface}", add)

    def unsteer(self, interface: str, address: IPv4Address) -> None:
        """Removes rule and host route. The device may be gone: its rule stays, and would steer the next
        device of that name. The route of an address that moved to another device stays."""

        def remove(ip: Any) -> None:
            unless(errno.ENOENT, change=lambda: ip.rule("del", **self._rule(interface)))
            try:
                index = self._reader.link(interface).index
            except NoDevice:
                # With the device, the kernel removed the route.
                return
            route = {"dst": f"{address}/{_HOST}", "oif": index, "scope": "link", **self._marks()}
            unless(errno.ESRCH, change=lambda: ip.route("del", **route))

        self._kernel.change(f"stop steering {interface}", remove)

    def remove_hand_off(self) -> None:
        """Removes the route to the appliance."""
        self._kernel.change(
            f"remove the default route of table {self._table}",
            lambda ip: unless(
                errno.ESRCH, change=lambda: ip.route("del", dst=_DEFAULT_ROUTE, **self._marks())
            ),
        )

    def read(self) -> SteeringState:
        """What steers now."""
        rules = {
            rule.iif: rule.table
            for rule in self._reader.rules()
            if rule.iif is not None and rule.protocol == OWN_PROTOCOL and rule.priority == _PRIORITY
        }
        routes = [
            route
            for route in self._reader.routes([self._table])
            if route.family == AddressFamily.INET and route.protocol == str(OWN_PROTOCOL)
        ]
        return SteeringState(rules, _host_routes(routes), _handoff(routes))

    def _marks(self) -> dict[str, int]:
        return {"table": self._table, "proto": OWN_PROTOCOL}

    def _rule(self, interface: str) -> dict[str, Any]:
        return {
            "iifname": interface, "table": self._table, "priority": _PRIORITY, "protocol": OWN_PROTOCOL,
        }  # fmt: skip


def _host_routes(routes: list[RouteEntry]) -> dict[str, int]:
    return {
        route.destination.removesuffix(f"/{_HOST}"): hop.ifindex
        for route in routes
        for hop in route.next_hops
        if route.destination.endswith(f"/{_HOST}") and hop.ifindex is not None
    }


def _handoff(routes: list[RouteEntry]) -> tuple[str, int] | None:
    for route in routes:
        for hop in route.next_hops:
            if route.destination == _DEFAULT_ROUTE and hop.gateway is not None and hop.ifindex is not None:
                return hop.gateway, hop.ifindex
    return None
