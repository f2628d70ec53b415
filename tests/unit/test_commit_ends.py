"""Which sessions cannot go on with a new configuration: one test a rule."""

from collections.abc import Callable
from ipaddress import IPv4Network
from typing import Any

import pytest
from msgspec.structs import replace

from gateway_api.core.configuration.running import RunningConfiguration
from gateway_api.core.configuration.unconfirmed import as_confirmed, until_confirmed
from gateway_api.core.gateways.linux.sessions.commit_ends import ended_by_commit
from gateway_api.core.gateways.linux.sessions.session import LinuxSession
from gateway_api.core.gateways.linux.sessions.session_store import SessionKey
from gateway_api.wire.configuration import Configuration
from gateway_api.wire.core.sessions import SessionType
from tests.support.documents import valid_document
from tests.support.links import session

Change = Callable[[dict[str, Any]], object]


def configured(*changes: Change, source_range: str = "100.64.0.0/16") -> Configuration:
    document = valid_document()
    document["cgnat"]["source_range"] = source_range
    for change in changes:
        change(document)
    return RunningConfiguration.of(document).sections


def at(id: int, address: str | None, source: str = "accel-ppp", **more: Any) -> LinuxSession:
    """A session with an address, on a VLAN that always has a profile."""
    made = session(id, ip_address=address, **{"access_interface": "trunk0.1000", **more})
    return replace(made, key=SessionKey(source, str(id)))


def on(id: int, vlan: str) -> LinuxSession:
    return session(id, access_interface=vlan)


def ended(
    sessions: list[LinuxSession], wanted: Configuration, running: Configuration | None = None
) -> list[int]:
    return ended_by_commit(sessions, running or configured(), wanted)


# VLANs


def test_sessions_on_a_removed_trunk_end() -> None:
    def remove(document: dict[str, Any]) -> None:
        document["demux"]["trunks"] = ["trunk0"]

    sessions = [on(1, "trunk0.1000"), on(2, "trunk1.1000"), on(3, "trunk1.50.7"), on(4, "eth9")]
    assert ended(sessions, configured(remove)) == [2, 3]


def test_sessions_on_vlans_that_no_remaining_profile_covers_end() -> None:
    def narrow(document: dict[str, Any]) -> None:
        pppoe, _ = document["demux"]["vlan_profiles"]
        document["demux"]["vlan_profiles"] = [{**pppoe, "name": "other", "vlan_range": "1000-1999"}]

    # A VLAN without a profile before was none of the demux.
    sessions = [on(1, "trunk0.1999"), on(2, "trunk0.2000"), on(3, "trunk0.100.200"), on(4, "trunk0.7")]
    assert ended(sessions, configured(narrow)) == [2, 3]


def test_sessions_on_vlans_of_another_session_type_end() -> None:
    def swap(document: dict[str, Any]) -> None:
        document["demux"]["vlan_profiles"][0]["type"] = "dhcp"

    assert ended([on(1, "trunk0.1000"), on(2, "trunk0.100.200")], configured(swap)) == [1]


def test_sessions_of_a_profile_with_another_name_or_overhead_go_on() -> None:
    def rename(document: dict[str, Any]) -> None:
        document["demux"]["vlan_profiles"][0] |= {"name": "other", "overhead_profile": "none"}

    assert ended([on(1, "trunk0.1000")], configured(rename)) == []


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
    assert ended(sessions, configured(source_range=source_range)) == ids


def test_sessions_with_an_address_of_a_removed_pool_end() -> None:
    def with_pools(*networks: str) -> Change:
        pools = [{"name": f"pool{number}", "network": network} for number, network in enumerate(networks)]
        return lambda document: document.update(subscribers={"pools": pools})

    running = configured(with_pools("203.0.113.0/24", "198.51.100.0/24"))
    sessions = [at(1, "203.0.113.9"), at(2, "198.51.100.9"), at(3, "100.64.0.9"), at(4, "192.0.2.9")]
    assert ended(sessions, configured(with_pools("198.51.100.0/25")), running) == [1]
    # An address moves from the range to a pool.
    moved = configured(with_pools("100.64.0.0/24"), source_range="100.65.0.0/16")
    assert ended(sessions, moved, running) == [1, 2]


LEASE = at(1, "100.64.200.9", "dnsmasq", type=SessionType.DHCP)
UNCONFIRMED = until_confirmed(configured(source_range="100.65.0.0/16"), IPv4Network("100.64.0.0/16"))


def test_a_lease_of_the_former_range_goes_on_until_the_commit_is_confirmed() -> None:
    others = [at(2, "100.64.7.9", "pppoe-server"), at(3, "100.64.0.9")]
    assert ended([LEASE, *others], UNCONFIRMED) == [2, 3]
    assert ended([LEASE], as_confirmed(UNCONFIRMED), UNCONFIRMED) == [1]
    # The return, or a second range, ends the leases of the unconfirmed range alone.
    newer = at(2, "100.65.200.9", "dnsmasq", type=SessionType.DHCP)
    assert ended([LEASE, newer], configured(), UNCONFIRMED) == [2]
    second = until_confirmed(configured(source_range="100.66.0.0/16"), IPv4Network("100.64.0.0/16"))
    assert ended([LEASE, newer], second, UNCONFIRMED) == [2]
    # In the larger range, the address is in the share of PPPoE.
    larger = until_confirmed(configured(source_range="100.64.0.0/15"), IPv4Network("100.64.0.0/16"))
    assert ended([LEASE], larger) == [1]


def test_sessions_whose_address_their_source_gives_to_others_end() -> None:
    # The second half of the range is the share of dnsmasq, and a larger range has it elsewhere.
    sessions = [
        at(1, "100.64.200.9", "dnsmasq", type=SessionType.DHCP),
        at(2, "100.64.7.9", "pppoe-server"),
        # accel-ppp has all of it.
        at(3, "100.64.200.9"),
    ]
    for source_range in ("100.64.0.0/15", "100.64.0.0/10"):
        assert ended(sessions, configured(source_range=source_range)) == [1]
    sessions = [at(1, "100.64.7.9", "pppoe-server"), at(2, "100.64.2.9", "pppoe-server")]
    assert ended(sessions, configured(source_range="100.64.0.0/21")) == [1]


def test_a_lease_of_an_address_that_a_local_subscriber_has_now_ends() -> None:
    def fix(document: dict[str, Any]) -> None:
        local = {"username": "alice", "password": "secret", "ip_address": "100.64.200.9"}
        document["subscribers"] = {"local": [local]}

    sessions = [
        at(1, "100.64.200.9", "dnsmasq", type=SessionType.DHCP),
        at(2, "100.64.200.9", "pppoe-server"),
        at(3, "100.64.200.10", "dnsmasq", type=SessionType.DHCP),
    ]
    assert ended(sessions, configured(fix)) == [1]
    # Dhcp gets the address back.
    assert ended(sessions, configured(), configured(fix)) == [2]


def with_ipv6(**ranges: str) -> Change:
    return lambda document: document.update(subscribers=ranges)


IPV6 = {"ipv6_range": "2001:db8:100::/40", "delegated_range": "2001:db8:8000::/36"}


@pytest.mark.parametrize(
    ("ranges", "ids"),
    [
        (IPV6, []),
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
    assert ended(sessions, configured(with_ipv6(**ranges)), configured(with_ipv6(**IPV6))) == ids


# Authorization


def test_sessions_of_accel_ppp_alone_end_when_subscribers_are_authorized_otherwise() -> None:
    def by_radius(document: dict[str, Any]) -> None:
        document["radius"] = {"server": "192.0.2.1", "secret": "between-us"}

    sessions = [at(1, "100.64.0.9", "dnsmasq"), at(2, "100.64.0.10", "pppoe-server"), at(3, "100.64.0.11")]
    assert ended(sessions, configured(by_radius)) == [3]
    assert ended(sessions, configured(), configured(by_radius)) == [3]
