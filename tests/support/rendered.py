"""The files rendered from a configuration, arbitrary valid configurations, and the check of the files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from gateway_contract.base.errors import StepFailed
from gateway_contract.base.vlan_names import short_name
from gateway_contract.configuration import Configuration
from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.daemons.accel_command_line import CommandLine
from gateway_core.gateways.linux.daemons.accel_ppp import COMMAND_LINE, AccelPppDaemon
from gateway_core.gateways.linux.daemons.daemon import PlacedFiles, ServiceDaemon
from gateway_core.gateways.linux.daemons.frr import FrrDaemon, FrrFolders
from gateway_core.gateways.linux.daemons.pppd import PppdFiles
from gateway_core.gateways.linux.daemons.systemd import Systemd


def profile(name: str, kind: str, vlan_range: str, outer_vlan_range: str | None = None) -> dict[str, Any]:
    return {
        "name": name,
        "type": kind,
        "vlan_range": vlan_range,
        "outer_vlan_range": outer_vlan_range,
        "overhead_profile": "none",
    }


RADIUS = {"server": "192.0.2.5", "secret": "s3cr3t!", "authentication_port": 2812, "accounting_port": 2813}
FURTHER_RADIUS = [
    {"address": "192.0.2.6", "secret": "0ther", "accounting_port": 3813},
    {"address": "192.0.2.7", "secret": "third", "authentication_port": 3812},
]


_NOWHERE = Path("/nowhere")


def daemons(path: str = "") -> dict[str, ServiceDaemon]:
    """Return the daemons that run by files alone, by file name. vtysh is in the folder `path`."""
    files = PlacedFiles(_NOWHERE)
    pppd = PppdFiles(files)
    accel = AccelPppDaemon(files, CommandLine(COMMAND_LINE), Systemd())
    frr = FrrDaemon(files, FrrFolders(programs=Path(path) if path else _NOWHERE))
    of_pppd = ("chap-secrets", "radiusclient.conf", "radius-servers")
    return {**dict.fromkeys(of_pppd, pppd), "accel-ppp.conf": accel, "frr.conf": frr}


def render(configuration: Configuration) -> dict[str, str]:
    return {
        name: text for daemon in daemons().values() for name, text in daemon.render(configuration).items()
    }


def rendered(document: dict[str, Any]) -> dict[str, str]:
    return render(RunningConfiguration.of(document).sections)


GOOD = {
    "accel-ppp.conf": "# Rendered.\n[modules]\nlog_syslog\n\n[core]\nlog-error=/var/log/core.log\n",
    "chap-secrets": "# Rendered.\nalice * pw-alice *\nbob * pw-bob 100.64.0.7\n",
    "frr.conf": "! Rendered.\nhostname bng1\n",
    "radius-servers": "# Rendered.\n192.0.2.5 s3cr3t!\n",
}


def _means_nothing(text: str) -> bool:
    return text.lower() in ("null", "none", "~")


hostnames = st.sampled_from(["7", "bng-1.isp.example", ".".join(["a" * 63, "b" * 63, "c" * 63, "d" * 61])])
#: Addresses of hosts: not unspecified, multicast or reserved.
addresses = st.ip_addresses(v=4, network="0.0.0.0/1").filter(int).map(str)
numbers_of_as = st.integers(1, 4294967295)
secrets = st.text(
    [chr(code) for code in range(0x21, 0x7F) if chr(code) not in "\"'#,\\"], min_size=1, max_size=128
).filter(lambda text: not text.startswith("@") and not _means_nothing(text))
usernames = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9_.@/-]{0,12}", fullmatch=True)
descriptions = (
    st.text([chr(code) for code in range(0x20, 0x7F)], max_size=80)
    .map(str.strip)
    .filter(lambda text: "| " not in text and "  " not in text and not _means_nothing(text))
)
rates = st.builds("{}{}".format, st.integers(8, 390), st.sampled_from(["000", "kbit", "mbit", "Gbps", " m"]))
networks = st.builds(
    lambda number, prefix: f"{number >> 24}.{number >> 16 & 255}.0.0/{prefix}",
    # Of hosts: not 0.0.0.0, and below multicast.
    st.integers(1 << 16, (224 << 24) - 1),
    st.integers(16, 30),
).filter(lambda text: not text.startswith(("0.", "127.", "169.254.")))


addresses_of_ipv6 = st.ip_addresses(v=6, network="2001:db8::/32").map(str)
networks_of_ipv6 = st.builds(
    lambda number, prefix: f"2001:db8:{number:x}::/{prefix}", st.integers(1, 0xFFFF), st.integers(48, 128)
)


#: They do not overlap.
vlan_profiles = st.lists(
    st.sampled_from(
        [
            profile("a", "pppoe", "1-999"),
            profile("_", "dhcp", "1000-4094"),
            profile("Res-1", "pppoe", "7", "4094"),
            profile("b2", "dhcp", "8-4094", "1-4094"),
        ]
    ),
    unique_by=lambda one: one["name"],
)


@st.composite
def valid_documents(draw: st.DrawFn) -> dict[str, Any]:
    """Generate configurations of moderate size, with any valid value in each field."""
    # Of any length: no two end alike, as the end stands for a name that is too long with its tags.
    taken = r"\.\.?|[0-9]+|(?i:lo|all|mgmt|n|nu|nul|null|null0)|(ppp|ipoe|ifb-?)[0-9]+"
    interfaces = st.from_regex(rf"(?!({taken})\Z|ifb-)[A-Za-z0-9._@][A-Za-z0-9._@+-]{{0,14}}", fullmatch=True)
    names = draw(st.lists(interfaces, unique_by=short_name, min_size=3, max_size=7))
    vrf_name, uplink, *trunks = names
    heads = [head for trunk in trunks for head in (trunk, short_name(trunk))]
    assume(not any(vrf_name.startswith(f"{head}.") for head in heads))
    one, *others = draw(st.lists(addresses, min_size=1, max_size=3, unique=True))
    further = [{"address": other, "secret": draw(secrets)[:48]} for other in others]
    document: dict[str, Any] = {
        "system": {"hostname": draw(hostnames)},
        "interfaces": {"trunks": trunks, "uplinks": [uplink]},
        "radius": draw(
            st.just({})
            | st.fixed_dictionaries(
                {"server": st.just(one), "secret": secrets.map(lambda text: text[:48])},
                optional={
                    "authentication_port": st.integers(1, 65535),
                    "servers": st.just(further),
                    "bind": st.none() | addresses,
                },
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
            "vlan_profiles": draw(vlan_profiles),
            "rate_limits": {"vlans_per_second": 1, "burst": 1, "max_vlans": 1},
            "idle_timeout": draw(st.integers(1, 7 * 86400)),
        },
        "api": {"enabled": False},
    }
    neighbor = st.fixed_dictionaries(
        {"address": addresses | addresses_of_ipv6, "remote_as": numbers_of_as},
        optional={
            "description": descriptions,
            "families": st.just(["ipv6"]),
            "password": secrets.map(lambda text: text[:80]),
            "bfd": st.booleans(),
            "maximum_prefixes": st.integers(1, 4294967295),
        },
    )
    bgp = st.fixed_dictionaries(
        {"as_number": numbers_of_as, "router_id": addresses},
        optional={
            "neighbors": st.lists(neighbor, max_size=4, unique_by=lambda item: item["address"]),
            "announce": st.sampled_from(["aggregates", "hosts"]),
            "networks": st.lists(networks | networks_of_ipv6, max_size=3, unique=True),
            "accept": st.lists(networks | networks_of_ipv6 | st.just("0.0.0.0/0"), max_size=3, unique=True),
        },
    )
    subscriber = st.fixed_dictionaries(
        {"username": usernames, "password": secrets}, optional={"ip_address": st.none() | addresses}
    )
    whose_address = (lambda item: item["username"], lambda item: item.get("ip_address") or item["username"])
    local = st.lists(subscriber, max_size=4, unique_by=whose_address)
    if draw(st.booleans()):
        document["bgp"] = draw(st.none() | bgp)
    if draw(st.booleans()):
        dns_servers = st.lists(addresses, max_size=2, unique=True)
        ipv6 = {
            "ipv6_dns_servers": st.lists(st.sampled_from(["2001:db8::53", "fd00::53"]), unique=True),
            "ipv6_range": st.sampled_from([None, "2001:db8::/32", "2001:db8::/63"]),
            "delegated_range": st.sampled_from([None, "fd00::/16", "fd00::/47"]),
            "delegated_length": st.integers(48, 64),
        }
        some = st.fixed_dictionaries({}, optional={"local": local, "dns_servers": dns_servers, **ipv6})
        document["subscribers"] = draw(some)
    return document


def checked(files: Mapping[str, str | bytes], path: str = "") -> None:
    """Check the files, with vtysh only if `path` has it."""
    of_file = daemons(path)
    for name, content in files.items():
        text = content if isinstance(content, str) else content.decode("latin-1")
        of_file[name].verify({name: text})


def refusal(files: Mapping[str, str | bytes], path: str = "") -> StepFailed:
    with pytest.raises(StepFailed) as refused:
        checked(files, path)
    return refused.value
