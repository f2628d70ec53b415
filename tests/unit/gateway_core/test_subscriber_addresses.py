"""Who gets which addresses of the source range, and the settings of a pppoe-server."""

from ipaddress import IPv4Address, IPv4Network, IPv6Network
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.daemons.pppoe_server import PppoeSettings
from gateway_core.gateways.linux.daemons.subscriber_addresses import (
    MAX_BLOCK_SIZE,
    SessionPrefixes,
    SharedRange,
)
from gateway_core.gateways.linux.daemons.systemd import name_instance

ranges = st.builds(
    lambda number, prefix: IPv4Network((number << 16, prefix)),
    st.integers(0x0A00, 0x0AFF),
    st.integers(16, 30),
)


def blocks(shared: SharedRange, most: int = 100_000) -> list[IPv4Address]:
    """All that VLANs get, one after the other."""
    taken: list[IPv4Address] = []
    while len(taken) < most and (first := shared.find_free_block(set(taken))) is not None:
        taken.append(first)
    return taken


def test_vlans_get_blocks_of_sixteen_from_the_seventeenth_address_and_dhcp_the_second_half() -> None:
    shared = SharedRange(IPv4Network("100.64.0.0/24"))
    assert [str(first) for first in blocks(shared)][::6] == ["100.64.0.16", "100.64.0.112"]
    assert [str(address) for address in shared.dhcp] == ["100.64.0.128", "100.64.0.254"]


@given(ranges)
def test_no_address_is_given_away_twice(network: IPv4Network) -> None:
    shared = SharedRange(network)
    given_away = [first + place for first in blocks(shared, 50) for place in range(MAX_BLOCK_SIZE)]
    first, last = shared.dhcp
    assert len(set(given_away)) == len(given_away)
    assert all(network.network_address + 1 < address < first for address in given_away)
    assert network.network_address + 1 < first <= last < network.broadcast_address


@pytest.mark.parametrize(("network", "number"), [("10.0.0.0/27", 0), ("10.0.0.0/26", 1), ("10.0.0.0/30", 0)])
def test_a_small_range_has_few_blocks_or_none(network: str, number: int) -> None:
    assert len(blocks(SharedRange(IPv4Network(network)))) == number


@pytest.mark.parametrize(("vlans", "block"), [(1, 16), (7, 16), (8, 8), (14, 8), (57, 1), (112, 1), (500, 1)])
def test_a_range_has_a_block_for_each_vlan_as_large_as_possible(
    document: dict[str, Any], vlans: int, block: int
) -> None:
    document["cgnat"]["source_range"] = "10.0.0.0/24"
    shared = SharedRange.of(RunningConfiguration.of(document).sections, vlans)
    assert shared.block == block
    assert len(blocks(shared)) == 112 // block


@pytest.mark.parametrize(
    ("address", "prefix"),
    [
        ("100.64.0.16", "2001:db8:80:20::/64"),
        ("100.64.0.127", "2001:db8:80:fe::/64"),
        ("100.64.0.128", "2001:db8:80:1::/64"),
        ("100.64.0.129", "2001:db8:80:3::/64"),
        ("203.0.113.10", None),
        (None, None),
    ],
)
def test_a_session_has_the_prefix_with_the_place_of_its_address(
    document: dict[str, Any], address: str | None, prefix: str | None
) -> None:
    document["cgnat"]["source_range"] = "100.64.0.0/24"
    document["subscribers"] = {"ipv6_range": "2001:db8::/40"}
    prefixes = SessionPrefixes()
    prefixes.configure(RunningConfiguration.of(document).sections)
    found = prefixes(address)
    assert (None if found is None else str(found)) == prefix


def test_no_two_sessions_have_one_prefix_and_the_last_ones_have_none(document: dict[str, Any]) -> None:
    document["cgnat"]["source_range"], half = "100.64.0.0/24", IPv6Network("2001:db8:0:80::/57")
    document["subscribers"] = {"ipv6_range": "2001:db8::/56"}
    prefixes = SessionPrefixes()
    prefixes.configure(RunningConfiguration.of(document).sections)
    found = [prefixes(str(address)) for address in IPv4Network("100.64.0.0/24")]
    given_away = [prefix for prefix in found if prefix is not None]
    assert len(set(given_away)) == len(given_away) == 128
    assert all(prefix.subnet_of(half) for prefix in given_away)


def test_a_failed_commit_puts_the_prefixes_back(document: dict[str, Any]) -> None:
    prefixes = SessionPrefixes()
    document["subscribers"] = {"ipv6_range": "2001:db8::/40"}
    put_back = prefixes.configure(RunningConfiguration.of(document).sections)
    assert prefixes("100.64.0.16") is not None
    put_back()
    assert prefixes("100.64.0.16") is None


def test_a_fixed_address_makes_room_for_fewer_blocks(document: dict[str, Any]) -> None:
    document["cgnat"]["source_range"] = "10.0.0.0/24"
    document["subscribers"] = {
        "local": [{"username": "alice", "password": "pw-alice", "ip_address": "10.0.0.20"}]
    }
    shared = SharedRange.of(RunningConfiguration.of(document).sections, 7)
    assert shared.block == 8
    assert len(blocks(shared)) == shared.number_of_blocks == 13


def test_a_block_with_the_fixed_address_of_a_subscriber_is_given_to_no_vlan() -> None:
    shared = SharedRange(IPv4Network("10.0.0.0/24"), frozenset({IPv4Address("10.0.0.31")}))
    assert str(blocks(shared)[0]) == "10.0.0.32"
    assert not shared.has_block(IPv4Address("10.0.0.16"))


@pytest.mark.parametrize("address", ["10.0.0.0", "10.0.0.17", "10.0.0.128", "10.0.1.16", "9.255.255.240"])
def test_what_is_not_the_beginning_of_a_block_is_none(address: str) -> None:
    assert not SharedRange(IPv4Network("10.0.0.0/24")).has_block(IPv4Address(address))


@given(st.booleans(), st.lists(st.ip_addresses(v=4), max_size=2), st.sampled_from([1, 2, 4, 8, 16]))
def test_the_settings_of_a_server_are_read_as_they_were_written(
    has_radius: bool, dns_servers: list[IPv4Address], block: int
) -> None:
    addresses = IPv4Address("10.0.0.1"), IPv4Address("10.0.0.16")
    written = PppoeSettings(*addresses, has_radius, "bng-1.isp.example", tuple(dns_servers), block)
    assert PppoeSettings.parse(str(written)) == written
    assert str(written).count("\n") == 1 + bool(dns_servers)


@pytest.mark.parametrize(
    "text",
    [
        *("", "\n", "10.0.0.1 10.0.0.16 secrets bng1", "10.0.0.1 10.0.0.16 secrets bng1\n\n"),
        *(f"10.0.0.1 {rest}\n" for rest in ("10.0.0.16 other bng1", "10.0.0 secrets bng1")),
        *(f"10.0.0.1 {rest}\n" for rest in ("10.0.0.16/28 secrets bng1", "10.0.0.16 secrets")),
        *(
            f"10.0.0.1 10.0.0.16 secrets bng1\n{dns_servers}"
            for dns_servers in ("10.0.0.2", "10.0.0\n", "10.0.0.2 \n", "10.0.0.2 10.0.0.3 10.0.0.4\n", "x\n")
        ),
    ],
)
def test_settings_that_the_core_did_not_write_are_none(text: str) -> None:
    assert PppoeSettings.parse(text) is None


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("trunk0.300", "trunk0.300"),
        ("trunk-0.50.7", r"trunk\x2d0.50.7"),
        (".a@b+c_d", r"\x2ea\x40b\x2bc_d"),
        ("a/b", "a-b"),
        ("\xe9", r"\xc3\xa9"),
    ],
)
def test_the_name_of_an_instance_is_escaped_as_systemd_does(name: str, escaped: str) -> None:
    assert name_instance("gateway-pppoe@.service", name) == f"gateway-pppoe@{escaped}.service"
