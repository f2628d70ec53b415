"""The lists of the Linux gateway, made of what the kernel, the demux and the sessions have."""

from typing import Any

from gateway_contract.core.network import AddressFamily, Interface, InterfaceStats, Route
from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.demux.admission import AccessVlan, ManagedVlan, VlanState
from gateway_core.gateways.linux.kernel.fib import MAIN_TABLE, NextHop, RouteEntry
from gateway_core.gateways.linux.kernel.links import Address
from gateway_core.gateways.linux.sessions.session import LinuxSession
from gateway_core.gateways.linux.views import Links, list_routes, list_vlans
from gateway_core.records.paging import Rows
from gateway_core.sessions.table import SessionTable
from tests.support.links import KnownLinks, link, on_vlan, session
from tests.support.sources import CGNAT

VLAN_100, VLAN_200 = AccessVlan("trunk0", None, 100), AccessVlan("trunk0", None, 200)
QINQ = AccessVlan("trunk0", 50, 7)
MACHINE = (
    link(1, "lo"),
    link(2, "trunk0", mac_address="02:00:00:00:00:01"),
    link(3, "uplink0"),
    link(4, "cgnat", "vrf"),
    link(10, "trunk0.200", "vlan", parent=2),
    link(11, "trunk0.100", "vlan", parent=2),
    link(12, "trunk0.50.7", "vlan", parent=99),
    link(20, "ppp0", "ppp", oper_state="unknown", stats=InterfaceStats(rx_bytes=7)),
    link(21, "ifb-ppp0", "ifb"),
    link(22, "ifb-trunk0.100", "ifb"),
)
PPPOE = session(5, interface="ppp0", access_interface="trunk0.200")
#: Two of DHCP on one VLAN.
DHCP = (on_vlan(6, "trunk0.100", ip_address="100.64.0.6"), on_vlan(7, "trunk0.100", ip_address="100.64.0.7"))
SESSIONS = (PPPOE, *DHCP)
VLANS = (VLAN_200, QINQ, VLAN_100)


def interfaces(
    sessions: tuple[LinuxSession, ...] = SESSIONS, vlans: tuple[AccessVlan, ...] = VLANS, **changes: Any
) -> list[Interface]:
    reader = KnownLinks(*MACHINE)
    for name, value in changes.items():
        setattr(reader, name, value)
    found = list(Links(reader).list_interfaces(["trunk0"], vlans, sessions).records())
    assert all(isinstance(each, Interface) for each in found)
    return found  # type: ignore[return-value]


def paged(rows: Rows, size: int) -> list[Any]:
    """All records, in pages."""
    found: list[Any] = []
    after = None
    while page := list(rows.rows_after(after, size))[:size]:
        found += [record for _, record in page]
        after = page[-1][0]
    return found


# Interfaces


def test_interfaces_are_the_machine_s_then_vlans_then_devices_then_ifbs() -> None:
    found = {each.name: each for each in interfaces()}
    assert [(name, str(each.type)) for name, each in found.items()] == [
        ("lo", "loopback"), ("trunk0", "trunk"), ("uplink0", "other"), ("cgnat", "vrf"),
        ("trunk0.100", "vlan"), ("trunk0.200", "vlan"), ("trunk0.50.7", "vlan"), ("ppp0", "ppp"),
        ("ifb-ppp0", "ifb"), ("ifb-trunk0.100", "ifb"),
    ]  # fmt: skip
    # The kernel does not know what carries a ppp device. A parent may be in another namespace.
    parents = [found[name].parent for name in ("trunk0", "trunk0.100", "ppp0", "trunk0.50.7")]
    assert parents == [None, "trunk0", "trunk0.200", None]
    assert (found["ppp0"].stats.rx_bytes, found["ppp0"].oper_state) == (7, "unknown")


def test_an_interface_has_its_addresses_and_its_master() -> None:
    own = Address(3, AddressFamily.INET, "192.0.2.1", 24)
    enslaved = [link(3, "uplink0", master=4), link(4, "cgnat", "vrf")]
    uplink, vrf = interfaces((), (), found=enslaved, assigned=[own])
    assert ([each.address for each in uplink.addresses], uplink.master) == (["192.0.2.1"], "cgnat")
    assert (vrf.addresses, vrf.master) == ((), None)


def test_what_has_no_device_is_no_interface_and_a_shared_device_is_one() -> None:
    found = interfaces((*SESSIONS, session(9, interface="ppp9")), (*VLANS, AccessVlan("trunk0", None, 300)))
    assert sorted(each.name for each in found) == sorted(each.name for each in MACHINE)


def test_a_device_with_the_name_of_a_former_session_is_that_of_the_newest() -> None:
    former = session(4, interface="ppp0", access_interface="trunk0.100")
    (ppp,) = (each for each in interfaces((former, *SESSIONS)) if each.name == "ppp0")
    assert ppp.parent == "trunk0.200"


def test_pages_of_interfaces_are_the_whole_list() -> None:
    rows = Links(KnownLinks(*MACHINE)).list_interfaces(["trunk0"], VLANS, SESSIONS)
    assert paged(rows, 1) == paged(rows, 3) == list(rows.records())
    assert len(rows) == len(MACHINE)


# Routes

DEVICES = {2: "trunk0", 3: "uplink0", 11: "trunk0.100", 20: "ppp0"}


def entry(destination: str, *hops: NextHop, **fields: Any) -> RouteEntry:
    return RouteEntry(
        **{
            "table": MAIN_TABLE, "destination": destination, "next_hops": hops,
            "protocol": "kernel", "scope": "link", "type": "unicast", "metric": None, "source": None,
            **fields,
        }
    )  # fmt: skip


def over(ifindex: int, gateway: str | None = None) -> NextHop:
    return NextHop(gateway, ifindex)


def routes(*entries: RouteEntry, sessions: tuple[LinuxSession, ...] = SESSIONS) -> list[Route]:
    rows = list_routes(entries, DEVICES, sessions)
    found = list(rows.records())
    assert len(rows) == len(found)
    return found  # type: ignore[return-value]


def owners(*entries: RouteEntry, sessions: tuple[LinuxSession, ...] = SESSIONS) -> list[int | None]:
    return [route.session_id for route in routes(*entries, sessions=sessions)]


def test_a_route_to_a_session_has_its_id_by_address_then_by_device() -> None:
    assert owners(entry("100.64.0.7/32", over(11))) == [7]
    assert owners(entry("100.64.0.10/32", over(3))) == [5]
    assert owners(entry("198.51.100.0/24", over(20))) == [5]
    assert owners(entry("198.51.100.0/24", over(3, "192.0.2.2"))) == [None]
    ipv6_only = session(8, interface="ppp8", ip_address=None, ipv6_address="2001:db8::8")
    assert owners(entry("0.0.0.0/0", over(3, "192.0.2.2")), sessions=(ipv6_only,)) == [None]


def test_a_route_over_a_shared_vlan_belongs_to_the_session_with_the_prefix() -> None:
    first = on_vlan(6, "trunk0.100", delegated_prefixes=("2001:db8:6::/56",), ipv6_prefix="2001:db8:1::/64")
    newer = on_vlan(7, "trunk0.100", ip_address="100.64.0.7", ipv6_address="2001:db8::7")
    found = [
        entry(destination, over(11))
        for destination in ("2001:db8:6::/56", "2001:db8:1::/64", "2001:db8::7/128", "fe80::/64")
    ]
    assert owners(*found, sessions=(first, newer)) == [None, 6, 6, 7]


def test_each_next_hop_is_a_route() -> None:
    hops = over(3, "192.0.2.2"), over(2, "192.0.2.3")
    found = routes(entry("0.0.0.0/0", *hops, protocol="bgp", scope="global", metric=20))
    assert [(route.gateway, route.dev) for route in found] == [
        ("192.0.2.2", "uplink0"),
        ("192.0.2.3", "trunk0"),
    ]
    assert {(route.protocol, route.metric, route.table) for route in found} == {("bgp", 20, "main")}


def test_a_route_that_leads_nowhere_has_no_device_and_a_steered_one_names_its_table() -> None:
    (route,) = routes(entry("198.51.100.0/24", type="blackhole"))
    assert (route.dev, route.gateway, route.type, route.session_id) == ("", None, "blackhole", None)
    found = routes(entry("100.64.0.10/32", over(20), table=100), entry("0.0.0.0/0", over(3), table=100))
    assert [(route.table, route.session_id) for route in found] == [("100", None), ("100", 5)]


def test_pages_of_routes_are_the_network_s_then_those_of_sessions_by_id() -> None:
    destinations = ("100.64.0.7/32", "10.0.0.0/8", "100.64.0.10/32", "0.0.0.0/0", "100.64.0.6/32")
    rows = list_routes([entry(each, over(3)) for each in destinations], DEVICES, SESSIONS)
    order = ["10.0.0.0/8", "0.0.0.0/0", "100.64.0.10/32", "100.64.0.6/32", "100.64.0.7/32"]
    assert [route.dst for route in paged(rows, 2)] == [route.dst for route in rows.records()] == order


# VLANs

_AHEAD = 1_700_000_000.0


def managed(
    *sessions: LinuxSession,
    vlans: tuple[AccessVlan, ...] = VLANS,
) -> Rows:
    table: SessionTable[LinuxSession] = SessionTable(CGNAT)
    for each in sessions:
        table.add(each)
    served = [ManagedVlan(vlan, SessionType.PPPOE, VlanState.SERVED, 12.5, 20.0, 20.0) for vlan in vlans]
    return list_vlans(served, Links(KnownLinks(*MACHINE)), table, _AHEAD)


def test_a_vlan_counts_its_sessions() -> None:
    counts = {vlan.name: vlan.session_count for vlan in managed(*SESSIONS).records()}
    assert counts == {"trunk0.100": 2, "trunk0.200": 1, "trunk0.50.7": 0}


def test_vlans_are_by_tags_with_the_time_of_its_start_and_the_state_of_its_device() -> None:
    vlans = list(managed().records())
    assert [vlan.name for vlan in vlans] == ["trunk0.100", "trunk0.200", "trunk0.50.7"]
    assert paged(managed(), 1) == vlans
    *_, double = vlans
    assert (double.outer_vlan_id, double.vlan_id, double.protocol) == (50, 7, "802.1ad")
    assert (double.trunk, double.created_at, double.oper_state) == ("trunk0", 1_700_000_012, "up")
    (vlan,) = managed(vlans=(AccessVlan("trunk0", None, 300),)).records()
    assert vlan.oper_state == "notpresent"
