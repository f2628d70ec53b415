"""The services' files: what they say, and whether the services would take them."""

import copy
import os
import re
import stat
from collections import Counter
from collections.abc import Mapping
from ipaddress import IPv4Network
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gateway_api.base.errors import Invalid
from gateway_api.core.configuration.outcome import StepFailed
from gateway_api.core.configuration.running import RunningConfiguration
from gateway_api.core.configuration.services import check, render
from tests.support import accel_ppp
from tests.support.documents import SECRET_HASH
from tests.support.frr import Frr
from tests.support.pppd import Pppd
from tests.unit.test_configuration import put

ALWAYS = {"accel-ppp.conf", "frr.conf", "qos.conf"}

RADIUS = {"server": "192.0.2.5", "secret": "s3cr3t!", "authentication_port": 2812, "accounting_port": 2813}
LOCAL = [
    {"username": "alice@isp", "password": "pw-alice", "ip_address": "100.64.0.7"},
    {"username": "line/1.2", "password": "*!$%&()+-./:;<=>?@[]^_`{|}~", "ip_address": None},
    {"username": "7", "password": "x" * 128},
]


def rendered(document: dict[str, Any]) -> dict[str, str]:
    return dict(render(RunningConfiguration.of(document).sections))


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


def value(document: dict[str, Any], name: str, option: str) -> str:
    """What an option is in a section of accel-ppp's file, where it stands once."""
    (found,) = (line for line in section(document, name) if line.startswith(f"{option}="))
    return found.partition("=")[2]


def values(document: dict[str, Any], name: str, option: str) -> list[str]:
    """Where it may stand several times."""
    return [line.partition("=")[2] for line in section(document, name) if line.startswith(f"{option}=")]


def profile(name: str, kind: str, vlan_range: str, outer_vlan_range: str | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "vlan_range": vlan_range,
        "outer_vlan_range": outer_vlan_range,
        "overhead_profile": "none",
    }


# Which files there are.


def test_without_a_radius_server_subscribers_are_in_chap_secrets(document: dict[str, Any]) -> None:
    assert set(rendered(document)) == ALWAYS | {"chap-secrets"}


def test_with_a_radius_server_there_are_its_clients_files_and_no_chap_secrets(
    document: dict[str, Any],
) -> None:
    document["radius"] = RADIUS
    document["subscribers"] = {"local": LOCAL}
    assert set(rendered(document)) == ALWAYS | {"radiusclient.conf", "radius-servers"}


def test_a_secret_without_a_server_is_in_no_file(document: dict[str, Any]) -> None:
    document["radius"] = {"server": None, "secret": "hunter2"}
    assert "hunter2" not in "".join(rendered(document).values())


def test_with_a_radius_server_no_file_has_the_passwords_of_local_subscribers(
    document: dict[str, Any],
) -> None:
    document["radius"] = RADIUS
    document["subscribers"] = {"local": LOCAL}
    assert "pw-alice" not in "".join(rendered(document).values())


def test_no_file_has_what_only_the_api_uses(document: dict[str, Any]) -> None:
    texts = "".join(rendered(document).values())
    assert SECRET_HASH not in texts
    assert "operator" not in texts


def test_the_same_configuration_gives_the_same_files(document: dict[str, Any]) -> None:
    assert rendered(copy.deepcopy(document)) == rendered(document)


# accel-ppp.


def test_accel_ppp_has_the_default_rates_in_kbit(document: dict[str, Any]) -> None:
    document["qos"] = {"default_down": "1.5gbit", "default_up": "64kbit"}
    assert value(document, "shaper", "rate-limit") == "1500000/64"


def test_a_default_rate_under_a_kbit_is_one(document: dict[str, Any]) -> None:
    document["qos"] = {"default_down": "1", "default_up": "1999"}
    assert value(document, "shaper", "rate-limit") == "1/1"


def test_accel_ppp_says_its_hosts_name(document: dict[str, Any]) -> None:
    put(document, "system.hostname", "bng9.isp.example")
    assert value(document, "pppoe", "ac-name") == "bng9.isp.example"


def test_accel_ppp_watches_the_vlans_of_each_profile_on_each_trunk(document: dict[str, Any]) -> None:
    document["demux"]["vlan_profiles"] = [
        profile("one", "pppoe", "100-199"),
        profile("two", "dhcp", "200"),
        profile("three", "pppoe", "5-9"),
    ]
    assert values(document, "pppoe", "vlan-mon") == [
        *("trunk0,100-199", "trunk0,5-9", "trunk1,100-199", "trunk1,5-9")
    ]
    assert values(document, "ipoe", "vlan-mon") == ["trunk0,200", "trunk1,200"]


def test_accel_ppp_watches_the_inner_vlans_of_each_outer_one(document: dict[str, Any]) -> None:
    document["demux"]["trunks"] = ["trunk1"]
    document["demux"]["vlan_profiles"] = [
        profile("one", "dhcp", "100-199", "10-12"),
        profile("two", "dhcp", "200", "7"),
    ]
    assert values(document, "ipoe", "vlan-mon") == [
        *("trunk1.10,100-199", "trunk1.11,100-199", "trunk1.12,100-199", "trunk1.7,200")
    ]
    assert values(document, "pppoe", "vlan-mon") == []


def test_accel_ppp_serves_the_interfaces_that_the_vlans_become(document: dict[str, Any]) -> None:
    document["interfaces"]["trunks"] = ["eth0.5", "a+b"]
    document["demux"]["trunks"] = ["eth0.5", "a+b"]
    document["demux"]["vlan_profiles"] = [
        profile("one", "pppoe", "100-199"),
        profile("two", "dhcp", "100-199", "10"),
    ]
    assert values(document, "pppoe", "interface") == [r"re:^eth0\.5\.[0-9]+$", r"re:^a\+b\.[0-9]+$"]
    assert values(document, "ipoe", "interface") == [
        *(r"re:^eth0\.5\.[0-9]+\.[0-9]+$", r"re:^a\+b\.[0-9]+\.[0-9]+$")
    ]


def test_accel_ppp_drops_idle_vlans_after_the_configured_time(document: dict[str, Any]) -> None:
    put(document, "demux.idle_timeout", 77)
    assert [value(document, kind, "vlan-timeout") for kind in ("pppoe", "ipoe")] == ["77", "77"]


def test_accel_ppp_gives_addresses_of_the_source_range(document: dict[str, Any]) -> None:
    put(document, "cgnat.source_range", "10.8.0.0/16")
    assert section(document, "ip-pool") == ["gw-ip-address=10.8.0.1", "10.8.0.0/16"]


def test_accel_ppp_asks_the_radius_server(document: dict[str, Any]) -> None:
    document["radius"] = RADIUS
    put(document, "system.hostname", "bng9")
    assert value(document, "radius", "server") == "192.0.2.5,s3cr3t!,auth-port=2812,acct-port=2813"
    assert value(document, "radius", "nas-identifier") == "bng9"
    assert "radius" in section(document, "modules")
    assert "chap-secrets" not in section(document, "modules")


def test_accel_ppp_reads_chap_secrets_without_a_radius_server(document: dict[str, Any]) -> None:
    assert value(document, "chap-secrets", "chap-secrets") == "/etc/ppp/chap-secrets"
    assert "chap-secrets" in section(document, "modules")
    assert "radius" not in section(document, "modules")


@pytest.mark.parametrize("radius", [{}, RADIUS])
def test_accel_ppp_loads_each_module_once(document: dict[str, Any], radius: dict[str, Any]) -> None:
    document["radius"] = radius
    modules = section(document, "modules")
    assert len(set(modules)) == len(modules)
    assert {"pppoe", "ipoe", "ippool", "shaper"} <= set(modules)


# chap-secrets and the RADIUS client.


def test_chap_secrets_has_a_line_a_subscriber(document: dict[str, Any]) -> None:
    document["subscribers"] = {"local": LOCAL}
    assert lines(document, "chap-secrets") == [
        "alice@isp * pw-alice 100.64.0.7",
        "line/1.2 * *!$%&()+-./:;<=>?@[]^_`{|}~ *",
        f"7 * {'x' * 128} *",
    ]


def test_without_local_subscribers_chap_secrets_has_none(document: dict[str, Any]) -> None:
    assert lines(document, "chap-secrets") == []


def test_the_radius_client_has_the_server_the_ports_and_the_secret(document: dict[str, Any]) -> None:
    document["radius"] = RADIUS
    put(document, "system.hostname", "bng9")
    client = lines(document, "radiusclient.conf")
    assert "authserver 192.0.2.5:2812" in client
    assert "acctserver 192.0.2.5:2813" in client
    assert "nas_identifier bng9" in client
    assert lines(document, "radius-servers") == ["192.0.2.5 s3cr3t!"]


def test_the_ports_of_a_radius_server_need_not_be_said(document: dict[str, Any]) -> None:
    document["radius"] = {"server": "192.0.2.5", "secret": "x"}
    client = lines(document, "radiusclient.conf")
    assert {"authserver 192.0.2.5:1812", "acctserver 192.0.2.5:1813"} <= set(client)
    assert value(document, "radius", "server") == "192.0.2.5,x,auth-port=1812,acct-port=1813"


# The shaping's defaults.


def test_the_shaping_has_its_defaults_in_bits(document: dict[str, Any]) -> None:
    document["qos"] = {"default_down": "1.5gbit", "default_up": "999"}
    assert lines(document, "qos.conf") == ["default_down_bps=1500000000", "default_up_bps=999"]


# FRR.


def test_frr_has_the_hosts_name(document: dict[str, Any]) -> None:
    put(document, "system.hostname", "bng9.isp.example")
    assert "hostname bng9.isp.example" in lines(document, "frr.conf")


def test_frr_has_the_bgp_neighbors(document: dict[str, Any]) -> None:
    document["bgp"] = {
        "as_number": 4200000000,
        "router_id": "192.0.2.1",
        "neighbors": [
            {"address": "192.0.2.8", "remote_as": 65001, "description": "core 8 |x"},
            {"address": "192.0.2.9", "remote_as": 65002},
        ],
    }
    found = lines(document, "frr.conf")
    block = found[found.index("router bgp 4200000000") : found.index("exit") + 1]
    assert " bgp router-id 192.0.2.1" in block
    assert [line for line in block if line.startswith(" neighbor")] == [
        " neighbor 192.0.2.8 remote-as 65001",
        " neighbor 192.0.2.8 description core 8 |x",
        " neighbor 192.0.2.9 remote-as 65002",
    ]


@pytest.mark.parametrize("absent", [True, False])
def test_without_bgp_frr_has_none(document: dict[str, Any], absent: bool) -> None:
    document["bgp"] = None
    if absent:
        del document["bgp"]
    assert "bgp" not in "".join(lines(document, "frr.conf"))


def test_frr_sends_all_of_the_vrf_to_the_handoff(document: dict[str, Any]) -> None:
    found = lines(document, "frr.conf")
    start = found.index("vrf cgnat")
    assert found[start : start + 3] == ["vrf cgnat", " ip route 0.0.0.0/0 10.255.1.2 cgnat0", "exit-vrf"]


def test_without_cgnat_frr_has_no_vrf(document: dict[str, Any]) -> None:
    put(document, "cgnat.enabled", False)
    assert "vrf" not in "".join(lines(document, "frr.conf"))


# Any valid configuration.

_LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]{0,20}[A-Za-z0-9])?"
hostnames = st.from_regex(rf"{_LABEL}(\.{_LABEL}){{0,3}}", fullmatch=True) | st.just(
    ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 61])
)
#: Those that a host can have: neither unspecified nor for groups, nor reserved.
addresses = st.ip_addresses(v=4, network="0.0.0.0/1").filter(int).map(str)
numbers_of_as = st.integers(1, 4294967295)
secrets = st.text(
    [chr(code) for code in range(0x21, 0x7F) if chr(code) not in "\"'#,\\"], min_size=1, max_size=128
).filter(lambda text: not text.startswith("@"))
usernames = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.@/-]{0,12}", fullmatch=True)
descriptions = (
    st.text([chr(code) for code in range(0x20, 0x7F)], max_size=80)
    .map(str.strip)
    .filter(lambda text: "| " not in text and "  " not in text)
)
rates = st.builds("{}{}".format, st.integers(1, 390), st.sampled_from(["", "kbit", "mbit", "Gbps", " m"]))
networks = st.builds(
    lambda number, prefix: f"{number >> 24}.{number >> 16 & 255}.0.0/{prefix}",
    # Of hosts: not 0.0.0.0, and below the groups.
    st.integers(1 << 16, (224 << 24) - 1),
    st.integers(16, 30),
).filter(lambda text: not text.startswith(("0.", "127.", "169.254.")))


@st.composite
def vlan_profiles(draw: st.DrawFn) -> list[dict[str, Any]]:
    """None of which overlap: each has inner VLANs of its own."""
    edges = sorted(draw(st.lists(st.integers(1, 4094), unique=True, max_size=8)))
    made = []
    for number, (first, last) in enumerate(zip(edges[::2], edges[1::2], strict=False)):
        outer = draw(st.none() | st.integers(1, 4090))
        width = draw(st.integers(0, 4))
        one = profile(
            f"{draw(st.sampled_from(['a', '_', 'Res-1']))}{number}",
            draw(st.sampled_from(["pppoe", "dhcp"])),
            f"{first}-{last}" if last > first + 1 else str(first),
            None if outer is None else f"{outer}-{outer + width}",
        )
        made.append(one)
    return made


@st.composite
def valid_documents(draw: st.DrawFn) -> dict[str, Any]:
    """Configurations of moderate size, in which any field may have any kind of value."""
    # Short enough for two tags of four digits after them.
    taken = r"lo|all|mgmt|\.\.?|[0-9]+|(?i:n|nu|nul|null|null0)|(ppp|ipoe|ifb-?)[0-9]+"
    short = st.from_regex(rf"(?!({taken})\Z|ifb-)[A-Za-z0-9._@][A-Za-z0-9._@+-]{{0,4}}", fullmatch=True)
    names = draw(st.lists(short, unique=True, min_size=3, max_size=7))
    vrf_name, uplink, *trunks = names
    assume(not any(vrf_name.startswith(f"{trunk}.") for trunk in trunks))
    document: dict[str, Any] = {
        "system": {"hostname": draw(hostnames)},
        "interfaces": {"trunks": trunks, "uplinks": [uplink]},
        "radius": draw(
            st.just({})
            | st.fixed_dictionaries(
                {"server": addresses, "secret": secrets.map(lambda text: text[:48])},
                optional={"authentication_port": st.integers(1, 65535)},
            )
        ),
        "cgnat": {
            "enabled": draw(st.booleans()),
            "vrf_name": vrf_name,
            "vrf_table": draw(st.integers(256, 4294967295)),
            "handoff_interface": uplink,
            "handoff_gateway": draw(addresses),
            "source_range": draw(networks),
        },
        "qos": {"default_down": draw(rates), "default_up": draw(rates)},
        "demux": {
            "trunks": draw(st.lists(st.sampled_from(trunks), unique=True)),
            "vlan_profiles": draw(vlan_profiles()),
            "rate_limits": {"vlans_per_second": 1, "burst": 1, "max_vlans": 1},
            "idle_timeout": draw(st.integers(1, 7 * 86400)),
        },
        "api": {"enabled": False},
    }
    neighbor = st.fixed_dictionaries(
        {"address": addresses, "remote_as": numbers_of_as}, optional={"description": descriptions}
    )
    bgp = st.fixed_dictionaries(
        {"as_number": numbers_of_as, "router_id": addresses},
        optional={"neighbors": st.lists(neighbor, max_size=4, unique_by=lambda item: item["address"])},
    )
    subscriber = st.fixed_dictionaries(
        {"username": usernames, "password": secrets}, optional={"ip_address": st.none() | addresses}
    )
    whose_address = (lambda item: item["username"], lambda item: item.get("ip_address") or item["username"])
    local = st.lists(subscriber, max_size=4, unique_by=whose_address)
    if draw(st.booleans()):
        document["bgp"] = draw(st.none() | bgp)
    if draw(st.booleans()):
        document["subscribers"] = {"local": draw(local)}
    return document


def moderate(examples: int) -> settings:
    """A busy machine is no reason to fail."""
    return settings(deadline=None, max_examples=examples, suppress_health_check=[HealthCheck.too_slow])


def checked(files: Mapping[str, str | bytes], path: str = "") -> None:
    """Looks at such files in a folder, with a vtysh only if there is one in `path`."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            (Path(folder) / name).write_bytes(data)
        patch.setenv("PATH", path)
        check(Path(folder))


def refusal(files: Mapping[str, str | bytes], path: str = "") -> StepFailed:
    with pytest.raises(StepFailed) as refused:
        checked(files, path)
    return refused.value


@given(valid_documents())
@moderate(40)
def test_the_files_of_every_valid_configuration_pass(document: dict[str, Any]) -> None:
    checked(rendered(document))


@given(valid_documents())
@moderate(40)
def test_every_secret_that_a_service_needs_reaches_it_as_it_is(document: dict[str, Any]) -> None:
    """Cut into words as the services do it."""
    files = rendered(document)
    if radius := document["radius"]:
        assert [line.split() for line in lines(document, "radius-servers")] == [
            [radius["server"], radius["secret"]]
        ]
        assert value(document, "radius", "server").split(",")[:2] == [radius["server"], radius["secret"]]
        assert "chap-secrets" not in files
        return
    local = document.get("subscribers", {"local": []})["local"]
    assert [line.split() for line in lines(document, "chap-secrets")] == [
        [one["username"], "*", one["password"], one.get("ip_address") or "*"] for one in local
    ]


# What is not taken.

GOOD = {
    "accel-ppp.conf": "# Rendered.\n[modules]\nlog_syslog\n\n[core]\nlog-error=/var/log/core.log\n",
    "chap-secrets": "# Rendered.\nalice * pw-alice *\nbob * pw-bob 100.64.0.7\n",
    "qos.conf": "# Rendered.\ndefault_down_bps=1\n",
    "frr.conf": "! Rendered.\nhostname bng1\n",
    "radius-servers": "# Rendered.\n192.0.2.5 s3cr3t!\n",
}


def test_files_of_the_right_form_pass() -> None:
    checked(GOOD)


def test_a_folder_without_files_passes() -> None:
    checked({})


def test_what_is_not_printable_is_refused_by_the_name_of_its_file() -> None:
    for hidden in (
        *(b"hunter2\x00", b"hunter2\t", b"hunter2\x1b[2J", b"hunter2\x7f", b"hunter2\r", b"hunter2\x0b"),
        *(b"hunter2\r# more", "hunter2\u00e9".encode(), "hunter2\u2028".encode(), "hunter2\x85".encode()),
        b"hunter2\xff",
    ):
        for name, good in GOOD.items():
            for content in (b"%b%b\n" % (good.encode(), hidden), b"%b\n%b" % (hidden, good.encode())):
                error = refusal({**GOOD, name: content})
                assert error.name == "check the services' files"
                assert error.reason == f"{name} is not lines of printable ASCII"


def test_a_file_that_is_cut_off_is_refused_by_its_name() -> None:
    for name in GOOD:
        for content in ("", "# Rendered.\n# cut o"):
            assert refusal({**GOOD, name: content}).reason.startswith(f"{name} ")


def test_a_line_that_has_not_its_form_is_refused_by_its_number() -> None:
    for name, line in (
        *[("accel-ppp.conf", line) for line in ("[hunter2", "hunter2 hunter2", "=hunter2", "hunter2=")],
        *[("accel-ppp.conf", line) for line in (" hunter=2", "hunter=2 ", "hunter = 2", "[hunter2 x]")],
        *[("chap-secrets", line) for line in ("hunter2", "a * hunter2", "a b hunter2 *", "a * hunter 2 *")],
        *[("chap-secrets", line) for line in ("a * hunter2 * x", " a * hunter2 *", "a  * hunter2 *", "")],
        *[("chap-secrets", line) for line in ("a * hunter2 isp.example", "a * hunter2 ")],
        *[("qos.conf", line) for line in ("hunter=two", "hunter=", "hunter = 2", "hunter=2 ", "", "=2")],
    ):
        content = GOOD[name].splitlines()
        content.insert(2, line)
        error = refusal({**GOOD, name: "\n".join(content) + "\n"})
        assert error.reason == f"{name}, line 3 is not of its form"
        assert "hunter" not in str(error)


def test_a_section_that_is_there_twice_is_refused_by_its_name() -> None:
    error = refusal({**GOOD, "accel-ppp.conf": GOOD["accel-ppp.conf"] + "[modules]\npppoe\n"})
    assert error.reason == "accel-ppp.conf has [modules] twice"


def test_where_no_vtysh_is_nobody_is_asked() -> None:
    checked({**GOOD, "frr.conf": "no command of frr\n"})


# FRR's own parser.


@pytest.fixture(scope="session")
def frr(tmp_path_factory: pytest.TempPathFactory) -> Frr:
    return Frr(tmp_path_factory.mktemp("frr"))


@pytest.fixture(scope="session")
def path_to_vtysh(frr: Frr) -> str:
    """A folder for PATH in which vtysh is FRR's own."""
    return frr.path


def frr_of(document: dict[str, Any]) -> dict[str, str]:
    return {"frr.conf": rendered(document)["frr.conf"]}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"bgp": None},
        {"cgnat.enabled": False},
        {"bgp": None, "cgnat.enabled": False},
        {"bgp.neighbors": []},
        {"bgp.as_number": 4294967295, "bgp.neighbors.0.remote_as": 1},
        {"system.hostname": "a"},
        {"system.hostname": "7"},
        {"system.hostname": ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 61])},
        {"cgnat.vrf_name": "fifteen_letters"},
        {"cgnat.vrf_name": "@.+-_"},
        {"cgnat.handoff_interface": "lo", "cgnat.enabled": False},
    ],
    ids=str,
)
def test_frr_takes_its_file(document: dict[str, Any], changes: dict[str, Any], path_to_vtysh: str) -> None:
    for path, changed in changes.items():
        put(document, path, changed)
    checked(rendered(document), path_to_vtysh)


#: What FRR has in its configuration without being told, besides the host's own name.
_OF_FRR_ITSELF = {"Building configuration...", "Current configuration:", "", "!", "exit", "exit-vrf", "end"}
_OF_FRR_ITSELF |= {"exit-address-family", "no ip forwarding", "no ipv6 forwarding"}
_OF_FRR_ITSELF |= {"service integrated-vtysh-config"}


def commands(lines: list[str]) -> Counter[str]:
    """What a configuration of FRR's says, without what is always so."""
    stripped = (line.strip() for line in lines)
    return Counter(
        line
        for line in stripped
        if line not in _OF_FRR_ITSELF and not line.startswith(("! ", "frr version "))
    )


def run_by_frr(frr: Frr, text: str) -> Counter[str]:
    """What FRR's daemons have, having read the text. Fails unless it is each command of it, letter by letter,
    and no other."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "frr.conf")
        file.write_text(text)
        running = commands(frr.read_back(file))
    running[f"hostname {os.uname().nodename}"] -= 1
    assert +running == commands(text.splitlines())
    return +running


#: All that a text may be made of, alone, first, last and in between; and what looks like something else.
NASTY = [
    *(chr(code) for code in range(0x21, 0x7F)),
    *(f"{chr(code)} x" for code in range(0x21, 0x7F) if chr(code) != "|"),
    *(f"x {chr(code)}" for code in range(0x21, 0x7F)),
    *(f"x {chr(code)} x" for code in range(0x21, 0x7F) if chr(code) != "|"),
    *("x" * 80, "a b c", "! x", "x ! y", "a?b", 'say "hi', "a|b", "|x", "x |", "a |b", "||", "100% |include"),
    *("exit", "end", "no router bgp 1", "$(reboot)", "\\n", "<cr>", "[a]", "(c|d)", "%s%n%d", "LINE..."),
]


def test_frr_has_every_description_as_it_was_set(document: dict[str, Any], frr: Frr) -> None:
    document["bgp"]["neighbors"] = [
        {"address": f"10.9.{number // 200}.{number % 200 + 1}", "remote_as": 7, "description": description}
        for number, description in enumerate(NASTY)
    ]
    running = run_by_frr(frr, rendered(document)["frr.conf"])
    for one in document["bgp"]["neighbors"]:
        assert f"neighbor {one['address']} description {one['description']}" in running


@pytest.mark.parametrize("description", ["core | include x", "| x", "x | x", "a| b"])
def test_a_description_that_frr_takes_for_a_pipe_is_refused(
    document: dict[str, Any], description: str
) -> None:
    put(document, "bgp.neighbors.0.description", description)
    with pytest.raises(Invalid) as refused:
        rendered(document)
    (problem,) = refused.value.problems
    assert problem.path == "bgp.neighbors.0.description"
    assert problem.message == "must not hold a | before a space: FRR takes it for a pipe"


def test_a_description_whose_spaces_frr_drops_is_refused(document: dict[str, Any]) -> None:
    put(document, "bgp.neighbors.0.description", "to the  core")
    with pytest.raises(Invalid) as refused:
        rendered(document)
    (problem,) = refused.value.problems
    assert problem.message == "must not hold two spaces in a row: FRR keeps one"


@pytest.mark.parametrize(
    "hostname", ["a", "7", "7-up.isp.example", ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 61])]
)
def test_frr_has_the_hostname_as_it_was_set(document: dict[str, Any], hostname: str, frr: Frr) -> None:
    put(document, "system.hostname", hostname)
    assert f"hostname {hostname}" in run_by_frr(frr, rendered(document)["frr.conf"])


@pytest.mark.parametrize("name", ["9", "table", "exit", "end", "vrf", "a.b", "@.+-_", "tcp", "unicast"])
def test_frr_has_the_vrf_as_it_was_set(document: dict[str, Any], name: str, frr: Frr) -> None:
    put(document, "cgnat.vrf_name", name)
    assert f"vrf {name}" in run_by_frr(frr, rendered(document)["frr.conf"])


@pytest.mark.parametrize("name", ["table", "tag", "onlink", "vrf", "nexthop-vrf", "b", "r", "e.5", "a+@"])
def test_frr_has_the_handoff_as_it_was_set(document: dict[str, Any], name: str, frr: Frr) -> None:
    document["interfaces"]["uplinks"].append(name)
    put(document, "cgnat.handoff_interface", name)
    running = run_by_frr(frr, rendered(document)["frr.conf"])
    assert f"ip route 0.0.0.0/0 {document['cgnat']['handoff_gateway']} {name}" in running


@given(document=valid_documents())
@moderate(12)
def test_frr_runs_every_valid_configuration_as_it_is_rendered(frr: Frr, document: dict[str, Any]) -> None:
    checked(frr_of(document), frr.path)
    run_by_frr(frr, rendered(document)["frr.conf"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hostname bng1\nbogus line\n", "line 2: % Unknown command"),
        ("bogus\n", "line 1: % Unknown command"),
        ("router bgp 65000\n neighbor 10.0.0.1 remote-as many\nexit\n", "line 2: % Unknown command"),
        ("router bgp 4294967296\n", "line 1: % Unknown command"),
        ("vrf cgnat\n ip route 0.0.0.0/33 10.0.0.1 eth0\nexit-vrf\n", "line 2: % Unknown command"),
    ],
)
def test_what_frr_refuses_is_refused_with_frrs_line(text: str, said: str, path_to_vtysh: str) -> None:
    error = refusal({**GOOD, "frr.conf": text}, path_to_vtysh)
    assert error.name == "check the services' files"
    assert error.reason.startswith(f"FRR refuses frr.conf: {said}")


def test_a_refusal_of_frr_has_no_path(path_to_vtysh: str) -> None:
    assert "/" not in str(refusal({"frr.conf": "bogus\n"}, path_to_vtysh))


@pytest.mark.parametrize(
    ("text", "instead"),
    [("bgp 64512", "bgp x"), ("remote-as 64513", "remote-as"), ("exit-vrf", "exit vrf"), ("hostname", "")],
)
def test_a_file_that_was_rendered_and_damaged_is_refused(
    document: dict[str, Any], text: str, instead: str, path_to_vtysh: str
) -> None:
    damaged = rendered(document)["frr.conf"].replace(text, instead)
    assert "FRR refuses frr.conf: line " in refusal({"frr.conf": damaged}, path_to_vtysh).reason


# pppd's own parsers, of chap-secrets and of its RADIUS client's files.


@pytest.fixture(scope="session")
def pppd(tmp_path_factory: pytest.TempPathFactory) -> Pppd:
    return Pppd(tmp_path_factory.mktemp("pppd"))


#: All that a secret may be made of: in one, alone, first, last and in between.
SECRET_CHARACTERS = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in "\"'#,\\")
SECRETS = [SECRET_CHARACTERS, *(one for one in SECRET_CHARACTERS if one != "@")]
SECRETS += [f"{one}x" for one in SECRET_CHARACTERS if one != "@"]
SECRETS += [f"x{one}" for one in SECRET_CHARACTERS] + [f"x{one}x" for one in SECRET_CHARACTERS]
SECRETS += ["x" * 128, "$(reboot)", "!@x", "-", "*", "%s%n", "{x}", "${x}"]


def document_of_secrets(document: dict[str, Any]) -> list[list[str]]:
    """Puts them all into it, and gives what a line of chap-secrets has to say for each."""
    names = ["a", "7", "_", "a@b.c", "a/b", "a-", "x" * 64]
    usernames = [*names, *(f"s{number}" for number in range(len(SECRETS) - len(names)))]
    document["subscribers"] = {
        "local": [
            {"username": username, "password": secret, "ip_address": f"10.9.8.{number}" if number else None}
            for number, (username, secret) in enumerate(zip(usernames, SECRETS[:255], strict=False))
        ]
        + [
            {"username": username, "password": secret}
            for username, secret in zip(usernames[255:], SECRETS[255:], strict=True)
        ]
    }
    return [
        [one["username"], "*", one["password"], one.get("ip_address") or "*"]
        for one in document["subscribers"]["local"]
    ]


def test_pppd_reads_every_secret_as_it_was_set(document: dict[str, Any], pppd: Pppd, tmp_path: Path) -> None:
    expected = document_of_secrets(document)
    file = tmp_path / "chap-secrets"
    file.write_text(rendered(document)["chap-secrets"])
    assert pppd.words(file) == expected


@pytest.mark.parametrize(
    ("secret", "hostname"),
    [
        (SECRET_CHARACTERS[:48], "bng1"),
        (SECRET_CHARACTERS[-48:], ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 61])),
        ("*", "7-up.isp.example"),
        ("x" * 48, "a"),
    ],
)
def test_pppds_radius_client_reads_its_files_as_they_were_set(
    document: dict[str, Any], secret: str, hostname: str, pppd: Pppd, tmp_path: Path
) -> None:
    document["radius"] = {**RADIUS, "secret": secret}
    put(document, "system.hostname", hostname)
    files = rendered(document)
    (tmp_path / "servers").write_text(files["radius-servers"])
    client = tmp_path / "radiusclient.conf"
    client.write_text(files["radiusclient.conf"].replace("/etc/radiusclient/servers", f"{tmp_path}/servers"))
    assert pppd.radius(client) == {
        "authserver": ["192.0.2.5", 2812],
        "acctserver": ["192.0.2.5", 2813],
        "nas_identifier": hostname,
        "secret": secret,
    }


def test_a_radius_secret_that_pppd_would_cut_off_is_refused(document: dict[str, Any]) -> None:
    document["radius"] = {**RADIUS, "secret": "x" * 49}
    with pytest.raises(Invalid) as refused:
        rendered(document)
    (problem,) = refused.value.problems
    assert (problem.path, problem.message) == (
        "radius.secret",
        "must be at most 48 characters: pppd keeps no more",
    )


# accel-ppp's grammar.


@given(valid_documents())
@moderate(40)
def test_accel_ppp_reads_every_valid_configuration_as_it_was_set(document: dict[str, Any]) -> None:
    read = accel_ppp.configuration(rendered(document)["accel-ppp.conf"])
    hostname = document["system"]["hostname"]
    assert ("ac-name", hostname) in read["pppoe"]
    gateway = str(IPv4Network(document["cgnat"]["source_range"])[1])
    assert read["ip-pool"] == [("gw-ip-address", gateway), (document["cgnat"]["source_range"], None)]
    if document["radius"]:
        options = dict(read["radius"])
        assert options["nas-identifier"] == hostname
        server = accel_ppp.radius_server(options["server"] or "")
        assert (server["address"], server["secret"]) == (
            document["radius"]["server"],
            document["radius"]["secret"],
        )
    watched = [value for kind in ("pppoe", "ipoe") for name, value in read[kind] if name == "vlan-mon"]
    trunks = document["demux"]["trunks"]
    inner = {one["vlan_range"] for one in document["demux"]["vlan_profiles"]}
    assert {(value or "").rpartition(",")[2] for value in watched} == (inner if trunks else set())
    for kind in ("pppoe", "ipoe"):
        for pattern in (value or "" for name, value in read[kind] if name == "interface"):
            vlans = [f"{trunk}.{tags}" for trunk in trunks for tags in ("7", "7.7")]
            assert any(re.match(pattern.removeprefix("re:"), vlan) for vlan in vlans)


def test_accel_ppp_reads_every_secret_as_it_was_set(document: dict[str, Any]) -> None:
    expected = document_of_secrets(document)
    assert accel_ppp.secrets(rendered(document)["chap-secrets"]) == expected


@pytest.mark.parametrize(
    "secret",
    [SECRET_CHARACTERS[:48], SECRET_CHARACTERS[-48:], "x{", "${x}", "[x]", "auth-port=1", "=", "1812", "*"],
)
def test_accel_ppp_reads_a_radius_secret_as_it_was_set(document: dict[str, Any], secret: str) -> None:
    document["radius"] = {**RADIUS, "secret": secret}
    read = accel_ppp.configuration(rendered(document)["accel-ppp.conf"])
    assert accel_ppp.radius_server(dict(read["radius"])["server"] or "") == {
        "address": "192.0.2.5",
        "secret": secret,
        "auth-port": "2812",
        "acct-port": "2813",
    }


# A vtysh that is broken.


def broken_vtysh(folder: Path, script: str) -> str:
    (folder / "vtysh").write_text(script)
    (folder / "vtysh").chmod(stat.S_IRWXU)
    return str(folder)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("#!/bin/sh\nexit 3\n", "FRR refuses frr.conf: no reason given"),
        ("#!/bin/sh\nkill -9 $$\n", "FRR refuses frr.conf: no reason given"),
        ("#!/bin/sh\nprintf 'line 3: \\377\\n' >&2; exit 2\n", "FRR refuses frr.conf: no reason given"),
        ("#!/nowhere/sh\n", "vtysh gave no answer"),
    ],
    ids=["fails", "dies", "no text", "cannot run"],
)
def test_a_vtysh_that_does_not_work_refuses(tmp_path: Path, script: str, reason: str) -> None:
    assert refusal(GOOD, broken_vtysh(tmp_path, script)).reason == reason


def test_a_vtysh_that_says_a_lot_is_cut_short(tmp_path: Path) -> None:
    long = "x" * 10_000
    script = f"#!/bin/sh\necho 'line 1: {long}' >&2; exit 2\n"
    assert len(refusal(GOOD, broken_vtysh(tmp_path, script)).reason) < 300
