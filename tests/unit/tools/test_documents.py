"""The files for people that come from the code, as committed: the man pages and the reference."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from gateway_core.configuration.running import RunningConfiguration
from gateway_core.gateways.linux.daemons.daemon import PlacedFiles
from gateway_core.gateways.linux.daemons.dnsmasq import DnsmasqDaemon
from gateway_core.gateways.linux.daemons.linux_services import DAEMONS
from gateway_core.gateways.linux.daemons.pppoe_server import PppoeSettings
from gateway_core.gateways.linux.daemons.subscriber_addresses import MAX_BLOCK_SIZE
from gateway_core.gateways.linux.daemons.systemd import Systemd
from gatewayctl.__main__ import gatewayctl
from tests.support.documents import put, valid_document
from tests.support.rendered import render
from tools.documents.__main__ import generate_files
from tools.documents.pages import generate_command_pages, generate_man_pages

ROOT = Path(__file__).parents[3]


def commands(command: click.Command, path: str = "gatewayctl") -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from commands(inner, f"{path} {name}")


def test_the_committed_files_are_those_of_the_code() -> None:
    made = generate_files()
    assert {path: (ROOT / path).read_text() for path in made} == made
    folders = ("etc/man", "etc/completion")
    held = {f"{folder}/{path.name}" for folder in folders for path in (ROOT / folder).iterdir()}
    assert held == {path for path in made if path.startswith(folders)}


def test_every_command_and_option_is_explained_and_in_a_page() -> None:
    made = generate_command_pages(gatewayctl)
    for path, command in commands(gatewayctl):
        assert command.help, path
        first = path.split(" ")[:2]
        assert command.get_short_help_str(1000).split(" ")[0] in made["-".join(first) + ".1"], path
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, (path, parameter.name)
                assert parameter.help.endswith("."), (path, parameter.name)


def test_a_line_that_begins_with_a_dot_is_text() -> None:
    made = click.Group("gatewayctl", help="First.\n\n.SH is not a command of roff here, nor is \\fB.")
    assert (
        "\n\\&.SH is not a command of roff here, nor is \\efB.\n"
        in generate_command_pages(made)["gatewayctl.1"]
    )


@pytest.mark.parametrize("name", ["gateway-api.8", "gateway-core.8"])
def test_every_command_of_a_service_is_described(name: str) -> None:
    _, commands, _ = re.split(r"(?m)^\.SH COMMANDS|^\.SH FILES", generate_man_pages()[name])
    for command in commands.split(".SS ")[1:]:
        # A sentence below the usage.
        assert re.match(r"[a-z][^\n]+\n\.PP\n[A-Z][^\n]+\.\n", command), command


_SUBSCRIBER = {"username": "alice", "password": "secret-1", "ip_address": "100.127.0.9"}
#: Another value of each path; daemons name it, or it is nothing to them.
VALUES = {
    "system.hostname": "bng9",
    "interfaces.uplinks": ["uplink0", "cgnat0", "uplink9"],
    "radius": {"server": "192.0.2.10", "secret": "secret-1"},
    "cgnat.enabled": False,
    "cgnat.vrf_name": "other",
    "cgnat.vrf_table": 99,
    "cgnat.handoff_interface": "uplink0",
    "cgnat.handoff_gateway": "10.255.1.9",
    "cgnat.source_range": "100.65.0.0/16",
    "qos.default_down": "7mbit",
    "demux.trunks": ["trunk0"],
    "demux.idle_timeout": 7,
    "demux.rate_limits.burst": 7,
    "api.token_lifetime": 77,
    "bgp.as_number": 64_999,
    "subscribers": {
        "dns_servers": ["192.0.2.53"],
        "local": [_SUBSCRIBER],
        "ipv6_range": "2001:db8::/40",
    },
    "history": {"days": 7},
}


def touched(document: dict[str, Any]) -> dict[str, Any]:
    """What each daemon runs by, by its name."""
    configuration = RunningConfiguration.of(document).sections
    files = render(configuration)
    dnsmasq = DnsmasqDaemon(Systemd(), PlacedFiles(Path("/nowhere")), is_source=True)
    first = configuration.cgnat.source_range.network_address + MAX_BLOCK_SIZE
    return {
        "accel-ppp": files["accel-ppp.conf"],
        "frr": files["frr.conf"],
        "dnsmasq": dnsmasq.render(configuration),
        "pppoe-server": PppoeSettings.of(configuration, first, MAX_BLOCK_SIZE),
    }


@pytest.mark.parametrize("path", list(VALUES))
def test_a_daemon_names_the_changes_that_touch_it(path: str) -> None:
    document = valid_document()
    # Uplinks have no routes of sessions.
    document["bgp"]["announce"] = "hosts"
    before = touched(document)
    put(document, path, VALUES[path])
    after = touched(document)
    assert {
        daemon.name
        for daemon in DAEMONS
        # pppd runs by its files at each sign-on, which is nothing to an operator.
        if daemon.name in before
        and any(_is_within(path, prefix) or _is_within(prefix, path) for prefix in daemon.effects)
    } == {name for name in before if before[name] != after[name]}


def _is_within(path: str, prefix: str) -> bool:
    return f"{path}.".startswith(f"{prefix}.")
