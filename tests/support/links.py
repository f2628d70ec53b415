"""Links, addresses and routes as a reader of the kernel gives them, for tests of what is made of them."""

from collections.abc import Iterable
from typing import Any

from gateway_contract.core.network import AdminState, InterfaceStats
from gateway_contract.core.sessions import SessionState, SessionType
from gateway_core.gateways.linux.kernel.fib import RouteEntry
from gateway_core.gateways.linux.kernel.links import Address, Link
from gateway_core.gateways.linux.kernel.netlink import KernelError, NoDevice
from gateway_core.gateways.linux.sessions.session import LinuxSession, SessionRecord
from gateway_core.gateways.linux.sessions.session_store import SessionKey
from tests.support.sources import TERMS, listed

STEERED = (True, True)


def link(index: int, name: str, kind: str | None = None, **fields: Any) -> Link:
    """Return a link that is up."""
    return Link(
        **{
            "index": index, "name": name, "kind": kind, "mac_address": None, "has_ethernet_header": True,
            "admin_state": AdminState.UP, "oper_state": "up", "mtu": 1500, "parent": None, "master": None,
            "vlan": None, "stats": InterfaceStats(), **fields,
        }
    )  # fmt: skip


def session(id: int, **fields: Any) -> LinuxSession:
    """Return a session of accel-ppp."""
    record = SessionRecord.new(listed(str(id), **fields), TERMS)
    return LinuxSession.of(id, SessionKey("accel-ppp", str(id)), record, SessionState.ACTIVE, STEERED)


def on_vlan(id: int, vlan: str, **fields: Any) -> LinuxSession:
    """Return a DHCP session without a device of its own."""
    return session(id, type=SessionType.DHCP, interface=vlan, access_interface=vlan, **fields)


class KnownLinks:
    """A reader of a kernel with the links, addresses and routes that a test gives it."""

    def __init__(self, *found: Link) -> None:
        self.found = list(found)
        self.assigned: list[Address] = []
        self.entries: list[RouteEntry] = []
        self.tables: list[int] = []
        self.fails = False
        self.readings = 0

    def read_links(self) -> dict[int, Link]:
        self.readings += 1
        if self.fails:
            raise KernelError("read the links", "No buffer space available")
        return {each.index: each for each in self.found}

    def find_link(self, name: str) -> Link:
        if self.fails:
            raise KernelError(f"find the link {name}", "No buffer space available")
        for each in self.found:
            if each.name == name:
                return each
        raise NoDevice(f"find the link {name}", "there is none")

    def find_links(self, names: Iterable[str]) -> list[Link | None]:
        links = {each.name: each for each in self.read_links().values()}
        return [links.get(name) for name in names]

    def read_statistics(self) -> dict[str, tuple[int, InterfaceStats]]:
        return {each.name: (each.index, each.stats) for each in self.read_links().values()}

    def read_addresses(self) -> list[Address]:
        return self.assigned

    def read_routes(self, tables: Iterable[int]) -> list[RouteEntry]:
        self.tables = list(tables)
        return [entry for entry in self.entries if entry.table in self.tables]
