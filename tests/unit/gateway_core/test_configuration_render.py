"""The services' files: what they say, and whether the services would take them."""

import copy
import stat
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from gateway_core.configuration.running import RunningConfiguration, add_former_range
from tests.support.documents import SECRET_HASH, put
from tests.support.rendered import (
    FURTHER_RADIUS,
    GOOD,
    RADIUS,
    checked,
    profile,
    refusal,
    render,
    rendered,
    valid_documents,
)

ALWAYS = {"accel-ppp.conf", "frr.conf"}

LOCAL = [
    {"username": "alice@isp", "password": "pw-alice", "ip_address": "100.64.0.7"},
    {"username": "line/1.2", "password": "*!$%&()+-./:;<=>?@[]^_`{|}~", "ip_address": None},
    {"username": "7", "password": "x" * 128},
]


def lines(document: dict[str, Any], name: str) -> list[str]:
    """Of one file, without comments and empty lines."""
    text = rendered(document)[name]
    assert text.endswith("\n")
    return [line for line in text.splitlines() if line.strip() and line[0] not in "#!" and line != " !"]


def section(document: dict[str, Any], name: str) -> list[str]:
    """The lines of one section of accel-ppp's file."""
    all_lines = lines(document, "accel-ppp.conf")
    assert all_lines.count(f"[{name}]") == 1
    rest = all_lines[all_lines.index(f"[{name}]") + 1 :]
    ends = [number for number, line in enumerate(rest) if line.startswith("[")]
    return rest[: ends[0]] if ends else rest


def values(document: dict[str, Any], name: str, option: str) -> list[str]:
    """What an option of a section of accel-ppp's file is, each time that it is there."""
    return [line.partition("=")[2] for line in section(document, name) if line.startswith(f"{option}=")]


# Which files there are.


@pytest.mark.parametrize(
    ("radius", "files"), [({}, {"chap-secrets"}), (RADIUS, {"radiusclient.conf", "radius-servers"})]
)
def test_there_are_the_files_of_local_subscribers_or_of_a_radius_server(
    document: dict[str, Any], radius: dict[str, Any], files: set[str]
) -> None:
    document["radius"] = radius
    document["subscribers"] = {"local": LOCAL}
    made = rendered(document)
    assert set(made) == ALWAYS | files
    assert ("pw-alice" in "".join(made.values())) == (not radius)
    assert rendered(copy.deepcopy(document)) == made


def test_no_file_has_what_no_service_uses(document: dict[str, Any]) -> None:
    document["radius"] = {"server": None, "secret": "hunter2"}
    texts = "".join(rendered(document).values())
    assert not [text for text in ("hunter2", SECRET_HASH, "operator", "vlan-") if text in texts]


# accel-ppp.


DEFAULTS = {"server": "192.0.2.5", "secret": "x"}
LONG = {**RADIUS, "timeout": 2, "max_try": 5, "nas_ip_address": "192.0.2.1", "bind": "192.0.2.2"}
TWO = {"servers": FURTHER_RADIUS, "dead_time": 40}
DNS = ["192.0.2.54", "192.0.2.53"]
SERVICES = "/var/lib/gateway-core/services"
IPV6 = {
    "ipv6_dns_servers": ["2001:db8::53", "2001:db8::54"],
    "ipv6_range": "2001:db8:100::/48",
    "delegated_range": "2001:DB8:8000::/40",
    "delegated_length": 56,
}


@pytest.mark.parametrize(
    ("path", "setting", "name", "expected"),
    [
        ("radius", {}, "connlimit", "limit=10/m burst=5 timeout=60"),
        # Without the lines, a reload keeps the former addresses.
        ("subscribers", {}, "dns", "dns1=0.0.0.0 dns2=0.0.0.0"),
        ("subscribers", {"dns_servers": ["192.0.2.54"]}, "dns", "dns1=192.0.2.54 dns2=0.0.0.0"),
        ("subscribers", {"dns_servers": DNS}, "dns", "dns1=192.0.2.54 dns2=192.0.2.53"),
        ("subscribers", {}, "ipv6-pool", ""),
        ("subscribers", {}, "ipv6-dns", ""),
        ("subscribers", IPV6, "ipv6-pool", "2001:db8:100::/49,64 delegate=2001:db8:8000::/40,56"),
        ("subscribers", IPV6, "ipv6-dns", "2001:db8::53 2001:db8::54"),
        # No more prefixes than the memory of accel-ppp can hold.
        (
            "subscribers",
            {"ipv6_range": "2001:db8::/32", "delegated_range": "fd00::/24"},
            "ipv6-pool",
            "2001:db8::/46,64 delegate=fd00::/38,56",
        ),
        # accel-ppp may still have the module.
        ("radius", {}, "radius", "nas-identifier=bng1"),
        ("radius", {}, "chap-secrets", f"gw-ip-address=100.64.0.1 chap-secrets={SERVICES}/chap-secrets"),
        ("radius", {}, "cli", f"tcp=127.0.0.1:2001 verbose=0 $include {SERVICES}/accel-ppp-password"),
    ],
)
def test_accel_ppp_has_a_section(
    document: dict[str, Any], path: str, setting: Any, name: str, expected: str
) -> None:
    document[path] = setting
    assert " ".join(section(document, name)) == expected


@pytest.mark.parametrize(
    ("path", "setting", "name", "expected"),
    [
        ("radius", {}, "modules", "pppoe ipoe ippool connlimit ipv6pool ipv6_nd ipv6_dhcp chap-secrets"),
        ("radius", RADIUS, "modules", "pppoe ipoe ippool radius shaper"),
        # No session gets the id of another after a restart.
        ("subscribers", {}, "common", "max-starting=1000 sid-source=urandom"),
        ("subscribers", {"max_starting": 50, "pado_delay": 200}, "common", "max-starting=50"),
        ("subscribers", {}, "pppoe", "ac-name=bng1 pado-delay=0"),
        ("subscribers", {"max_starting": 50, "pado_delay": 200}, "pppoe", "pado-delay=200"),
        ("system", {"hostname": "bng9.isp.example"}, "pppoe", "ac-name=bng9.isp.example"),
        ("subscribers", {}, "ppp", "ipv6=allow"),
        # Devices may make an address in the prefix.
        ("subscribers", {}, "ipv6-nd", "AdvAutonomousFlag=1"),
        # DHCP is authenticated by RADIUS alone, which gets the line of the subscriber.
        ("radius", {}, "ipoe", "gw-ip-address=100.64.0.1/10 username=ifname noauth=1 vendor=ADSL-Forum"),
        ("radius", {}, "ipoe", "attr-dhcp-opt82-circuit-id=ADSL-Agent-Circuit-Id"),
        ("radius", {}, "ipoe", "attr-dhcp-opt82-remote-id=ADSL-Agent-Remote-Id"),
        ("radius", DEFAULTS, "radius", "server=192.0.2.5,x,auth-port=1812,acct-port=1813"),
        # Without this, an update that is not answered ends the session after 3 s.
        ("radius", RADIUS, "radius", "acct-timeout=0"),
        # A lone server is never dead.
        ("radius", {**RADIUS, "dead_time": 40}, "radius", "fail-time=0"),
        ("radius", {**RADIUS, **TWO}, "radius", "fail-time=40"),
        # Without these addresses, a reload keeps the former ones.
        ("radius", RADIUS, "radius", "timeout=3 max-try=3 nas-ip-address=0.0.0.0 bind=0.0.0.0"),
        ("radius", LONG, "radius", "timeout=2 max-try=5 nas-ip-address=192.0.2.1 bind=192.0.2.2"),
    ],
)
def test_accel_ppp_has_options(
    document: dict[str, Any], path: str, setting: Any, name: str, expected: str
) -> None:
    document[path] = setting
    found = section(document, name)
    assert [found.count(option) for option in expected.split()] == [1] * len(expected.split())


def test_accel_ppp_lacks_what_it_would_do_by_itself(document: dict[str, Any]) -> None:
    assert not {"shaper", "radius"} & set(section(document, "modules"))
    document["radius"] = RADIUS
    assert "chap-secrets" not in section(document, "modules")
    assert values(document, "ipoe", "noauth") == []
    # Without a rate of RADIUS, it sets no limit.
    assert values(document, "shaper", "rate-limit") == []


def test_accel_ppp_serves_the_interfaces_that_the_vlans_become(document: dict[str, Any]) -> None:
    document["interfaces"]["trunks"] = document["demux"]["trunks"] = ["a+b", "enp1s0"]
    document["demux"]["vlan_profiles"] = [
        profile("one", "pppoe", "1-4094"),
        profile("two", "pppoe", "1-4094", "1000-1999"),
        profile("three", "dhcp", "100-199", "10"),
    ]
    # Of a trunk with a long name, some names have only its end.
    assert values(document, "pppoe", "interface") == [
        r"re:^a\+b\.[0-9]+$,padi-limit=10",
        r"re:^a\+b\.[0-9]+\.[0-9]+$,padi-limit=10",
        r"re:^enp1s0\.[0-9]+$,padi-limit=10",
        r"re:^enp1s0\.[0-9]+\.[0-9]+$,padi-limit=10",
        r"re:^np1s0\.[0-9]+\.[0-9]+$,padi-limit=10",
    ]
    assert values(document, "ipoe", "interface") == []
    assert lines(document, "accel-ppp.conf")[-1] == "$include /var/lib/gateway-core/services/ipoe-interfaces"
    assert section(document, "ipoe")[-1].startswith("$include ")


def test_accel_ppp_gives_addresses_of_the_source_range_and_of_further_pools(document: dict[str, Any]) -> None:
    put(document, "cgnat.source_range", "10.8.0.0/28")
    document["subscribers"] = {"pools": [{"name": "Business-1", "network": "203.0.113.0/24"}]}
    gateway, *networks, further = section(document, "ip-pool")
    assert gateway == "gw-ip-address=10.8.0.1"
    given = [str(address) for network in networks for address in IPv4Network(network)]
    assert given == [f"10.8.0.{number}" for number in range(2, 15)]
    assert further == "203.0.113.0/24,name=Business-1"
    checked(rendered(document))


# chap-secrets and the RADIUS client.


def test_chap_secrets_has_a_line_a_subscriber(document: dict[str, Any]) -> None:
    assert lines(document, "chap-secrets") == []
    document["subscribers"] = {"local": LOCAL}
    assert lines(document, "chap-secrets") == [
        "alice@isp * pw-alice 100.64.0.7",
        "line/1.2 * *!$%&()+-./:;<=>?@[]^_`{|}~ *",
        f"7 * {'x' * 128} *",
    ]


@pytest.mark.parametrize(
    ("radius", "expected"),
    [
        (
            DEFAULTS,
            ["authserver 192.0.2.5:1812", "acctserver 192.0.2.5:1813", "bindaddr *", "nas_identifier bng1"],
        ),
        (
            {**LONG, **TWO},
            [
                "authserver 192.0.2.5:2812 192.0.2.6:1812 192.0.2.7:3812",
                "acctserver 192.0.2.5:2813 192.0.2.6:3813 192.0.2.7:1813",
                *("bindaddr 192.0.2.2", "radius_timeout 2", "radius_retries 5"),
            ],
        ),
    ],
)
def test_the_radius_client_has_the_servers_and_how_to_ask_them(
    document: dict[str, Any], radius: dict[str, Any], expected: list[str]
) -> None:
    document["radius"] = radius
    found = lines(document, "radiusclient.conf")
    assert [line for line in expected if line not in found] == []
    if "servers" in radius:
        servers = ["192.0.2.5 s3cr3t!", "192.0.2.6 0ther", "192.0.2.7 third"]
        assert lines(document, "radius-servers") == servers
        # accel-ppp asks a further one only while the first is dead.
        assert values(document, "radius", "server") == [
            "192.0.2.5,s3cr3t!,auth-port=2812,acct-port=2813",
            "192.0.2.6,0ther,auth-port=1812,acct-port=3813,backup",
            "192.0.2.7,third,auth-port=3812,acct-port=1813,backup",
        ]


# FRR.


def test_frr_has_the_router_and_its_neighbors_who_have_the_routes_of_ipv6_alone_if_they_are_of_ipv6(
    document: dict[str, Any],
) -> None:
    document["bgp"]["neighbors"] = [
        {"address": "192.0.2.8", "remote_as": 65001, "description": "core 8 |x"},
        {"address": "2001:DB8::2", "remote_as": 65002},
    ]
    found = lines(document, "frr.conf")
    block = found[found.index("router bgp 64512") : found.index("exit") + 1]
    assert " bgp router-id 10.255.0.1" in block
    assert [line for line in block if line.startswith(" neighbor 192.0.2.8")] == [
        " neighbor 192.0.2.8 remote-as 65001",
        " neighbor 192.0.2.8 description core 8 |x",
    ]
    assert [line for line in found if "neighbor 2001:db8::2" in line] == [
        " neighbor 2001:db8::2 remote-as 65002",
        "  neighbor 2001:db8::2 activate",
        "  neighbor 2001:db8::2 route-map gateway-in-ipv6 in",
        "  neighbor 2001:db8::2 route-map gateway-out-ipv6 out",
    ]


def test_frr_sends_all_of_the_vrf_to_the_handoff_if_there_is_cgnat(document: dict[str, Any]) -> None:
    found = lines(document, "frr.conf")
    start = found.index("vrf cgnat")
    assert found[start : start + 3] == ["vrf cgnat", " ip route 0.0.0.0/0 10.255.1.2 cgnat0", "exit-vrf"]
    document["bgp"] = None
    put(document, "cgnat.enabled", False)
    assert not [line for line in lines(document, "frr.conf") if "bgp" in line or "vrf" in line]


def prefix_list(document: dict[str, Any], name: str) -> list[str]:
    """The entries of one of FRR's, without their numbers."""
    found = (line.partition(f" prefix-list {name} seq ") for line in lines(document, "frr.conf"))
    return [entry.partition(" ")[2] for _, is_one, entry in found if is_one]


def test_frr_announces_the_networks_of_subscribers(document: dict[str, Any]) -> None:
    document["subscribers"] = {"ipv6_range": "2001:db9::/40", "delegated_range": "fd00::/32"}
    of_sessions = ["permit 2001:db9::/40", "permit fd00::/32", "deny any"]
    assert prefix_list(document, "gateway-announced-ipv6") == of_sessions
    del document["subscribers"]
    document["bgp"]["networks"] = ["2001:db8::/40", "198.51.100.7/32"]
    found = lines(document, "frr.conf")
    networks = ["100.64.0.0/10", "198.51.100.7/32", "2001:db8::/40"]
    assert [line for line in found if line.startswith("  network")] == [
        f"  network {each}" for each in networks
    ]
    assert not [line for line in found if "redistribute" in line]
    assert prefix_list(document, "gateway-announced-ipv4") == [f"permit {each}" for each in networks[:2]] + [
        "deny any"
    ]
    assert prefix_list(document, "gateway-announced-ipv6") == ["permit 2001:db8::/40", "deny any"]
    # The core has a route for the range.
    assert [line.split()[2] for line in found if " reject tag " in line] == networks[1:]


def test_frr_announces_the_former_range_too_until_the_commit_is_confirmed(document: dict[str, Any]) -> None:
    sections = RunningConfiguration.of(document).sections
    text = render(add_former_range(sections, IPv4Network("10.8.0.0/16")))["frr.conf"]
    announced = [line.split()[1] for line in text.splitlines() if line.startswith("  network")]
    assert announced == ["100.64.0.0/10", "10.8.0.0/16"]


def test_frr_announces_the_routes_of_sessions_by_choice(document: dict[str, Any]) -> None:
    document["bgp"] |= {"announce": "hosts", "networks": ["2001:db8::/40", "198.51.100.7/32"]}
    found = lines(document, "frr.conf")
    assert not [line for line in found if line.startswith("  network")]
    assert [line for line in found if "redistribute" in line] == [
        f"  redistribute {kind} route-map gateway-sessions-{family}"
        for family in ("ipv4", "ipv6")
        for kind in ("kernel", "connected")
    ]
    assert prefix_list(document, "gateway-announced-ipv4") == [
        "deny 100.64.0.1/32",
        "deny 10.255.0.1/32",
        "permit 100.64.0.0/10 ge 32",
        "permit 198.51.100.7/32",
        "deny any",
    ]
    assert prefix_list(document, "gateway-announced-ipv6") == ["permit 2001:db8::/40 le 128", "deny any"]
    for number, uplink in enumerate(document["interfaces"]["uplinks"], 1):
        start = found.index(f"route-map gateway-sessions-ipv4 deny {number}")
        assert found[start + 1] == f" match interface {uplink}"


def test_frr_accepts_what_is_said_and_nothing_of_subscribers(document: dict[str, Any]) -> None:
    document["bgp"] |= {"accept": ["0.0.0.0/0", "192.0.2.0/24", "2001:db8:9::/48"]}
    assert prefix_list(document, "gateway-accepted-ipv4") == [
        "deny 100.64.0.0/10 le 32",
        "permit 0.0.0.0/0",
        "permit 192.0.2.0/24 le 32",
        "deny any",
    ]
    assert prefix_list(document, "gateway-accepted-ipv6") == ["permit 2001:db8:9::/48 le 128", "deny any"]


# Any valid configuration.


@given(valid_documents())
@settings(max_examples=40)
def test_every_valid_configuration_passes_and_each_secret_reaches_its_service_as_it_is(
    document: dict[str, Any],
) -> None:
    """Cut into words as the services do it."""
    files = rendered(document)
    checked(files)
    if radius := document["radius"]:
        further = [[one["address"], one["secret"]] for one in radius.get("servers", ())]
        expected = [[radius["server"], radius["secret"]], *further]
        assert [line.split() for line in lines(document, "radius-servers")] == expected
        assert [server.split(",")[:2] for server in values(document, "radius", "server")] == expected
        assert "chap-secrets" not in files
        return
    local = document.get("subscribers", {}).get("local", [])
    assert [line.split() for line in lines(document, "chap-secrets")] == [
        [one["username"], "*", one["password"], one.get("ip_address") or "*"] for one in local
    ]


# What is not taken.


def test_what_is_not_printable_or_cut_off_is_refused_by_the_name_of_its_file() -> None:
    for name, good in GOOD.items():
        for hidden in (b"\x00", b"\t", b"\x1b[2J", b"\x7f", b"\r", b"\r# more", "\u2028".encode(), b"\xff"):
            for content in (b"%b%b\n" % (good.encode(), hidden), b"%b\n%b" % (hidden, good.encode())):
                error = refusal({**GOOD, name: content})
                assert error.step == "check the services' files"
                assert error.reason == f"{name} is not lines of printable ASCII"
        for content in (b"", b"# Rendered.\n# cut o"):
            assert refusal({**GOOD, name: content}).reason.startswith(f"{name} ")
    error = refusal({**GOOD, "accel-ppp.conf": GOOD["accel-ppp.conf"] + "[modules]\npppoe\n"})
    assert error.reason == "accel-ppp.conf has [modules] twice"


def test_a_line_that_has_not_its_form_is_refused_by_its_number() -> None:
    for name, line in (
        *[("accel-ppp.conf", line) for line in ("[hunter2", "hunter2 hunter2", "=hunter2", "hunter2=")],
        *[("accel-ppp.conf", line) for line in (" hunter=2", "hunter=2 ", "[hunter2 x]")],
        *[("chap-secrets", line) for line in ("a * hunter2", "a b hunter2 *", "a * hunter2 * x", "")],
        *[("chap-secrets", line) for line in (" a * hunter2 *", "a  * hunter2 *", "a * hunter2 isp.example")],
    ):
        content = GOOD[name].splitlines()
        content.insert(2, line)
        error = refusal({**GOOD, name: "\n".join(content) + "\n"})
        assert error.reason == f"{name}, line 3 is not of its form"
        assert "hunter" not in str(error)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("#!/bin/sh\nkill -9 $$\n", "FRR refuses frr.conf: no reason given"),
        ("#!/bin/sh\nprintf 'line 3: \\377\\n' >&2; exit 2\n", "FRR refuses frr.conf: no reason given"),
        ("#!/nowhere/sh\n", "vtysh did not reply"),
        (f"#!/bin/sh\necho 'line 1: {'x' * 10_000}' >&2; exit 2\n", "FRR refuses frr.conf"),
    ],
    ids=["dies", "no text", "cannot run", "says a lot"],
)
def test_a_vtysh_that_does_not_work_refuses(tmp_path: Path, script: str, reason: str) -> None:
    (tmp_path / "vtysh").write_text(script)
    (tmp_path / "vtysh").chmod(stat.S_IRWXU)
    found = refusal(GOOD, str(tmp_path)).reason
    assert found.startswith(reason)
    assert len(found) < 300
