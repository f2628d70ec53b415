"""Which sessions cannot go on with a new configuration: one test a rule."""

from ipaddress import IPv4Network
from typing import Any

import pytest
from msgspec.structs import replace

from gateway_contract.configuration import Configuration
from gateway_contract.core.sessions import SessionType
from gateway_core.configuration.running import RunningConfiguration, add_former_range, remove_former_range
from gateway_core.gateways.linux.sessions.commit_ends import find_sessions_to_end
from gateway_core.gateways.linux.sessions.session import LinuxSession
from gateway_core.gateways.linux.sessions.session_store import SessionKey
from tests.support.documents import valid_document
from tests.support.links import session


def configured(source_range: str = "100.64.0.0/16", **sections: dict[str, Any]) -> Configuration:
    """A configuration with these values in its sections."""
    document = valid_document()
    document["cgnat"]["source_range"] = source_range
    for name, values in sections.items():
        document.setdefault(name, {}).update(values)
    return RunningConfiguration.of(document).sections


def at(id: int, address: str | None, source: str = "accel-ppp", **more: Any) -> LinuxSession:
    """A session with an address, on a VLAN that always has a profile."""
    made = session(id, ip_address=address, **{"access_interface": "trunk0.1000", **more})
    return replace(made, key=SessionKey(source, str(id)))


def ended(
    sessions: list[LinuxSession], wanted: Configuration, running: Configuration | None = None
) -> list[int]:
    return find_sessions_to_end(sessions, running or configured(), wanted)


PPPOE = valid_document()["demux"]["vlan_profiles"][0]


@pytest.mark.parametrize(
    ("demux", "ids"),
    [
        ({"trunks": ["trunk0"]}, [4, 5]),
        # No remaining profile covers them. A VLAN without a profile before is none of the demux.
        ({"vlan_profiles": [{**PPPOE, "name": "other", "vlan_range": "1000-1999"}]}, [2, 3, 5]),
        ({"vlan_profiles": [{**PPPOE, "type": "dhcp"}]}, [1, 2, 3, 4, 5]),
        ({"vlan_profiles": [{**PPPOE, "name": "other", "overhead_profile": "none"}]}, [3, 5]),
    ],
    ids=["trunk removed", "range narrowed", "other type", "other name"],
)
def test_sessions_on_vlans_that_go_end(demux: dict[str, Any], ids: list[int]) -> None:
    vlans = "trunk0.1000 trunk0.2000 trunk0.100.200 trunk1.1000 trunk1.150.107 trunk0.7 eth9"
    sessions = [session(id, access_interface=vlan) for id, vlan in enumerate(vlans.split(), 1)]
    assert ended(sessions, configured(demux=demux)) == ids


# Addresses


ADDRESSES = ["100.64.0.9", "100.64.40.9", "192.0.2.9", None]


@pytest.mark.parametrize(
    ("source_range", "ids"),
    [
        # Enlarged, moved, narrowed.
        ("100.64.0.0/10", []),
        ("100.65.0.0/16", [1, 2]),
        ("100.64.32.0/19", [1]),
        # The second address of the network is the gateway's from now on, the first and the last nobody's.
        ("100.64.40.8/29", [1, 2]),
    ],
)
def test_sessions_outside_another_range_end(source_range: str, ids: list[int]) -> None:
    sessions = [at(id, address) for id, address in enumerate(ADDRESSES, 1)]
    assert ended(sessions, configured(source_range)) == ids


def test_sessions_with_an_address_of_a_removed_pool_end() -> None:
    def pools(*networks: str) -> dict[str, Any]:
        return {"pools": [{"name": f"p{number}", "network": each} for number, each in enumerate(networks)]}

    running = configured(subscribers=pools("203.0.113.0/24", "198.51.100.0/24"))
    sessions = [at(1, "203.0.113.9"), at(2, "198.51.100.9"), at(3, "100.64.0.9"), at(4, "192.0.2.9")]
    assert ended(sessions, configured(subscribers=pools("198.51.100.0/25")), running) == [1]
    # An address moves from the range to a pool.
    moved = configured("100.65.0.0/16", subscribers=pools("100.64.0.0/24"))
    assert ended(sessions, moved, running) == [1, 2]


LEASE = at(1, "100.64.200.9", "dnsmasq", type=SessionType.DHCP)
UNCONFIRMED = add_former_range(configured("100.65.0.0/16"), IPv4Network("100.64.0.0/16"))


def test_a_lease_of_the_former_range_goes_on_until_the_commit_is_confirmed() -> None:
    others = [at(2, "100.64.7.9", "pppoe-server"), at(3, "100.64.0.9")]
    assert ended([LEASE, *others], UNCONFIRMED) == [2, 3]
    assert ended([LEASE], remove_former_range(UNCONFIRMED), UNCONFIRMED) == [1]
    # The return, or a second range, ends the leases of the unconfirmed range alone.
    newer = at(2, "100.65.200.9", "dnsmasq", type=SessionType.DHCP)
    assert ended([LEASE, newer], configured(), UNCONFIRMED) == [2]
    second = add_former_range(configured("100.66.0.0/16"), IPv4Network("100.64.0.0/16"))
    assert ended([LEASE, newer], second, UNCONFIRMED) == [2]
    # In the larger range, the address is in the share of PPPoE.
    larger = add_former_range(configured("100.64.0.0/15"), IPv4Network("100.64.0.0/16"))
    assert ended([LEASE], larger) == [1]


def test_sessions_whose_address_their_source_gives_to_others_end() -> None:
    # The second half of the range is the share of dnsmasq, and a larger range has it elsewhere.
    # accel-ppp has all of it.
    sessions = [LEASE, at(2, "100.64.7.9", "pppoe-server"), at(3, "100.64.200.9")]
    for source_range in ("100.64.0.0/15", "100.64.0.0/10"):
        assert ended(sessions, configured(source_range)) == [1]
    sessions = [at(1, "100.64.7.9", "pppoe-server"), at(2, "100.64.2.9", "pppoe-server")]
    assert ended(sessions, configured("100.64.0.0/21")) == [1]
    # A local subscriber has the address of a lease, until DHCP gets it back.
    local = {"username": "alice", "password": "secret", "ip_address": "100.64.200.9"}
    fixed, others = configured(subscribers={"local": [local]}), at(2, "100.64.200.9", "pppoe-server")
    assert ended([LEASE, others], fixed) == [1]
    assert ended([LEASE, others], configured(), fixed) == [2]


IPV6 = {"ipv6_range": "2001:db8:100::/40", "delegated_range": "2001:db8:8000::/36"}


@pytest.mark.parametrize(
    ("ranges", "ids"),
    [
        (IPV6 | {"delegated_length": 60}, []),
        # Enlarged, moved, removed.
        (IPV6 | {"ipv6_range": "2001:db8::/33"}, []),
        (IPV6 | {"ipv6_range": "2001:db8:200::/40"}, [1, 3]),
        (IPV6 | {"delegated_range": "2001:db8:9000::/36"}, [2, 3]),
        ({}, [1, 2, 3]),
    ],
)
def test_sessions_of_accel_ppp_with_a_prefix_outside_another_ipv6_range_end(
    ranges: dict[str, Any], ids: list[int]
) -> None:
    own, delegated = "2001:db8:100:7::/64", ("2001:db8:8000:700::/56",)
    sessions = [
        at(1, None, ipv6_prefix=own),
        at(2, None, delegated_prefixes=delegated),
        at(3, "100.64.0.9", ipv6_prefix=own, delegated_prefixes=delegated),
        # RADIUS said them.
        at(4, None, ipv6_prefix="2001:db8:ffff::/64", delegated_prefixes=("2001:db8:fff0::/56",)),
        at(5, "100.64.0.10"),
        at(6, "100.64.0.11", "pppoe-server", ipv6_prefix=own),
    ]
    assert ended(sessions, configured(subscribers=ranges), configured(subscribers=IPV6)) == ids


# Authorization


def test_sessions_of_accel_ppp_alone_end_when_subscribers_are_authorized_otherwise() -> None:
    by_radius = configured(radius={"server": "192.0.2.1", "secret": "between-us"})
    sessions = [at(1, "100.64.0.9", "dnsmasq"), at(2, "100.64.0.10", "pppoe-server"), at(3, "100.64.0.11")]
    assert ended(sessions, by_radius) == [3]
    assert ended(sessions, configured(), by_radius) == [3]
