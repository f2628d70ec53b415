"""The units of a gateway with real subscribers, on a machine with a real systemd and polkit: the core, and
Debian's pppoe-server and dnsmasq. The kernel may have no PPP: a program that waits stands in for pppd."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.documents import valid_document
from tests.support.machine import Machine, booted
from tests.support.package import install, state_of
from tests.support.stack import wait_for

PPPOE = "gateway-pppoe@trunk0.300.service"
AS_CORE = ("setpriv", "--reuid=gateway-core", "--regid=gateway-core", "--init-groups")
_PPPD = """#!/bin/sh
arguments="$*"
file=${arguments#* file }
file=${file%% *}
{ echo "$arguments"; cat /etc/ppp/options "$file" /etc/ppp/chap-secrets; } > /run/gateway-pppoe/pppd.$$.new
mv /run/gateway-pppoe/pppd.$$.new /run/gateway-pppoe/pppd.$$
exec sleep infinity
"""


@pytest.fixture(scope="module")
def machine(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """With the core running, and two interfaces like those of VLANs."""
    with booted(tmp_path_factory.mktemp("gateway") / "root") as up:
        install(up, packages.values())
        configuration = below(up, "/etc/gateway-api/first-configuration.json")
        configuration.write_text(json.dumps(first_configuration()))
        below(up, "/usr/sbin/pppd").write_text(_PPPD)
        below(up, "/etc/ppp/chap-secrets").write_text("operator * secret *\n")
        for tag in ("", ".200", ".300"):
            up.run("ip", "link", "add", f"trunk0{tag}", "type", "veth", "peer", "name", f"far{tag}")
            up.run("ip", "link", "set", f"trunk0{tag}", "up")
            up.run("ip", "link", "set", f"far{tag}", "up")
        # As on a machine that got its bus with this package, and was not restarted since.
        up.run("systemctl", "stop", "dbus.socket", "dbus.service")
        up.run("systemctl", "enable", "--now", "gateway-core-linux")
        wait_for("DHCP", lambda: state_of(up, "gateway-dnsmasq") == "active")
        yield up


def first_configuration() -> dict[str, Any]:
    """Without FRR, which the machine does not have."""
    document = valid_document()
    document["bgp"] = None
    document["interfaces"]["trunks"] = document["demux"]["trunks"] = ["trunk0"]
    document["subscribers"] = {"local": [{"username": "alice", "password": "pw-alice"}]}
    return document


def below(machine: Machine, path: str) -> Path:
    return machine.root / path.lstrip("/")


def settle(machine: Machine, interface: str, settings: str) -> None:
    """As the core writes it."""
    script = 'mkdir -p "$0" && printf %s "$2" > "$0/$1"'
    folder = "/var/lib/gateway-core/pppoe"
    machine.run(*AS_CORE, "sh", "-c", script, folder, interface, settings)


@pytest.fixture
def server(machine: Machine) -> Iterator[Machine]:
    """The machine with a pppoe-server, which the core's user has started."""
    settle(machine, "trunk0.300", "100.64.0.1 100.64.0.16 secrets bng1\n")
    machine.run(*AS_CORE, "systemctl", "start", PPPOE)
    wait_for("pppoe-server", lambda: servers(machine))
    yield machine
    machine.run("systemctl", "stop", PPPOE)
    machine.run("sh", "-c", "rm -f /run/gateway-pppoe/pppd.*")


def servers(machine: Machine) -> str:
    """The process ids of pppoe-server."""
    return machine.attempt("pgrep", "--exact", "pppoe-server").stdout


def dial(machine: Machine) -> tuple[str, str]:
    """A new session: the process id of its pppd, and what that saw."""
    before = set(sessions(machine))
    number, _, _ = machine.run("pppoe", "-I", "far.300", "-d").partition(":")
    assert int(number) > 0
    wait_for("pppd", lambda: set(sessions(machine)) - before)
    (new,) = set(sessions(machine)) - before
    return new, below(machine, f"/run/gateway-pppoe/pppd.{new}").read_text()


def sessions(machine: Machine) -> list[str]:
    """The process ids of pppd, of sessions that are over too."""
    return [path.suffix[1:] for path in below(machine, "/run/gateway-pppoe").glob("pppd.*[0-9]")]


def lives(machine: Machine, pid: str) -> bool:
    return machine.attempt("test", "-e", f"/proc/{pid}").returncode == 0


def core(machine: Machine) -> str:
    """Its process id."""
    return machine.run("systemctl", "show", "--property=MainPID", "--value", "gateway-core-linux").strip()


@contextmanager
def with_settings(machine: Machine, settings: str) -> Iterator[None]:
    """Of the core's unit, for its starts in the block."""
    drop_in = "/run/systemd/system/gateway-core-linux.service.d/tests.conf"
    machine.run("sh", "-c", 'mkdir -p "${0%/*}" && printf "$1" > "$0"', drop_in, f"[Service]\n{settings}")
    machine.run("systemctl", "daemon-reload")
    try:
        yield
    finally:
        machine.run("rm", drop_in)
        machine.run("systemctl", "daemon-reload")
        machine.run("systemctl", "restart", "gateway-core-linux")


def test_systemd_restarts_a_core_that_hangs(machine: Machine) -> None:
    with with_settings(machine, "WatchdogSec=4\nTimeoutAbortSec=1\n"):
        machine.run("systemctl", "restart", "gateway-core-linux")
        hung = core(machine)
        machine.run("kill", "-STOP", hung)
        wait_for("another core", lambda: core(machine) not in ("0", hung))
        wait_for("its replies", lambda: state_of(machine, "gateway-core-linux") == "active")
        assert "Watchdog timeout" in machine.run("journalctl", "-u", "gateway-core-linux", "-o", "cat")


def test_the_core_is_not_root_has_three_capabilities_and_may_ask_frr_and_read_journal_and_leases(
    machine: Machine,
) -> None:
    assert machine.run("ps", "-o", "user=", "-p", core(machine)).strip() == "gateway-core"
    # The first one is there without FRR, too.
    wanted = {"frrvty", "systemd-journal", "gateway-dnsmasq"}
    lines = below(machine, "/etc/group").read_text().splitlines()
    groups = {line.split(":")[2] for line in lines if line.split(":")[0] in wanted}
    status = below(machine, f"/proc/{core(machine)}/status").read_text().splitlines()
    # CAP_KILL 5, CAP_NET_ADMIN 12, CAP_NET_RAW 13 (linux/capability.h).
    capabilities = f"{1 << 5 | 1 << 12 | 1 << 13:016x}"
    assert {f"Cap{name}:\t{capabilities}" for name in ("Prm", "Eff", "Bnd", "Amb")} <= set(status)
    (held,) = (line for line in status if line.startswith("Groups:"))
    assert len(groups) == 3
    assert groups <= set(held.split())
    # vtysh asks PAM, which lets the core in without a password.
    rules = below(machine, f"/proc/{core(machine)}/root/etc/pam.d/frr").read_text()
    assert "account sufficient pam_permit.so\n" in rules
    secrets = below(machine, "/var/lib/gateway-core/services/chap-secrets")
    assert "alice * pw-alice *" in secrets.read_text()
    assert oct(secrets.stat().st_mode & 0o777) == "0o600"


def test_the_machine_forwards_only_after_the_rules_are_loaded(machine: Machine) -> None:
    machine.run("systemctl", "stop", "gateway-core-linux")
    machine.run("nft", "flush", "ruleset")
    machine.run("sysctl", "--quiet", "--write", "net.ipv4.ip_forward=0")
    # What is when the core is ready, and systemd goes on to what comes after it.
    look = "nft list table inet gateway > /run/seen; sysctl -n net.ipv4.ip_forward >> /run/seen"
    with with_settings(machine, f"ExecStartPost=\nExecStartPost=+/bin/sh -c '{look}'\n"):
        machine.run("systemctl", "start", "gateway-core-linux")
        seen = machine.run("cat", "/run/seen")
    assert seen.startswith("table inet gateway {")
    assert seen.endswith("}\n0\n")
    assert machine.run("sysctl", "--values", "net.ipv4.ip_forward") == "1\n"


def test_the_core_filters_the_packets_of_subscribers(machine: Machine) -> None:
    before = machine.run("nft", "list", "table", "inet", "gateway")
    assert "fib saddr . iif oif missing jump strangers" in before
    machine.run("nft", "flush", "ruleset")
    wait_for("the table", lambda: "table inet gateway" in machine.run("nft", "list", "tables"))
    machine.run("systemctl", "stop", "gateway-core-linux")
    assert "table inet gateway" in machine.run("nft", "list", "tables")
    machine.run("systemctl", "start", "gateway-core-linux")


def test_polkit_lets_the_core_restart_dhcp_and_refuses_what_it_does_not_need(machine: Machine) -> None:
    machine.run(*AS_CORE, "systemctl", "--no-ask-password", "restart", "gateway-dnsmasq.service")
    assert state_of(machine, "gateway-dnsmasq") == "active"
    for command in (
        ("restart", PPPOE),
        ("kill", "gateway-api.service"),
        ("restart", "gateway-core-linux.service"),
        ("stop", "gateway-api.service"),
        ("start", "gateway-core-lab.service"),
        ("stop", "gateway-pppoe.service"),
        ("daemon-reload",),
    ):
        refused = machine.attempt(*AS_CORE, "systemctl", "--no-ask-password", *command)
        assert refused.returncode != 0, command
        words = ("Access denied", "Interactive authentication required")
        assert any(word in refused.stdout for word in words), command


def test_a_session_gets_an_address_of_its_vlan_and_an_etc_ppp_of_its_own(server: Machine) -> None:
    _, seen = dial(server)
    assert "\nfile /etc/ppp/options.secrets\n" in seen
    assert " 100.64.0.1:100.64.0.16 " in seen
    assert "ms-dns" not in seen
    assert "set GATEWAY_SESSIONS=/run/gateway-pppoe" in seen
    assert "alice * pw-alice *" in seen
    assert "operator * secret *" not in seen


def test_a_reload_gives_new_sessions_the_addresses_and_the_dns_servers_of_the_settings(
    server: Machine,
) -> None:
    before = servers(server)
    old, _ = dial(server)
    settle(server, "trunk0.300", "100.64.0.1 100.64.0.20/32 secrets bng1\n192.0.2.53 192.0.2.54\n")
    server.run(*AS_CORE, "systemctl", "try-reload-or-restart", PPPOE)
    wait_for("another pppoe-server", lambda: servers(server) not in ("", before))
    assert below(server, "/run/gateway-pppoe/trunk0.300.pool").read_text() == "100.64.0.20\n"
    _, seen = dial(server)
    assert " 100.64.0.1:100.64.0.20 " in seen
    assert "\nfile /etc/ppp/options.secrets\nms-dns 192.0.2.53\nms-dns 192.0.2.54\n" in seen
    assert lives(server, old)


@pytest.mark.parametrize(
    "command",
    [(*AS_CORE, "systemctl", "try-reload-or-restart", PPPOE), ("pkill", "-9", "-x", "pppoe-server")],
)
def test_sessions_outlive_their_pppoe_server(server: Machine, command: tuple[str, ...]) -> None:
    before = servers(server)
    pid, _ = dial(server)
    # Stands in for the link of the session.
    server.run("ip", "address", "add", "100.64.0.1", "peer", "100.64.0.16/32", "dev", "trunk0.200")
    try:
        server.run(*command)
        wait_for("another pppoe-server", lambda: servers(server) not in ("", before))
        assert lives(server, pid)
        other, seen = dial(server)
        assert " 100.64.0.1:100.64.0.17 " in seen
    finally:
        server.run("ip", "address", "flush", "dev", "trunk0.200")
    server.run(*AS_CORE, "systemctl", "--no-ask-password", "stop", PPPOE)
    assert not lives(server, pid)
    assert not lives(server, other)


def test_a_pppoe_server_whose_interface_is_gone_ends(server: Machine) -> None:
    pid, _ = dial(server)
    server.run("ip", "link", "set", "trunk0.300", "name", "elsewhere")
    try:
        server.run("pkill", "-9", "-x", "pppoe-server")
        wait_for("the end of the unit", lambda: state_of(server, PPPOE) == "inactive")
        assert not lives(server, pid)
    finally:
        server.run("ip", "link", "set", "elsewhere", "name", "trunk0.300")
        server.run("ip", "link", "set", "trunk0.300", "up")


@pytest.mark.parametrize(
    "settings",
    [
        "100.64.0.1 100.64.0.16 secrets bng1 -X/tmp/x\n",
        "100.64.0.1 100.64.0.16 ../x bng1\n",
        "100.64.0.1;x 100.64.0.16 secrets bng1\n",
        "100.64.0.1 100.64.0.16 secrets bng1\n192.0.2.53 192.0.2.54 192.0.2.55\n",
    ],
)
def test_settings_that_are_not_in_their_form_start_no_pppoe_server(machine: Machine, settings: str) -> None:
    settle(machine, "trunk0.200", settings)
    unit = "gateway-pppoe@trunk0.200.service"
    machine.run("systemctl", "start", unit)
    try:
        words = "the settings of trunk0.200 are not in their form"
        wait_for("a refusal", lambda: words in machine.attempt("journalctl", "-u", unit, "-o", "cat").stdout)
        assert servers(machine) == ""
    finally:
        machine.run("systemctl", "stop", unit)


def test_the_core_reads_the_leases_of_dhcp_with_their_vlans(machine: Machine) -> None:
    machine.run("ip", "address", "add", "100.64.0.1/32", "dev", "trunk0.200")
    asked = ("busybox", "udhcpc", "-f", "-q", "-i", "far.200", "-s", "/bin/true", "-T", "1", "-t", "60", "-n")
    assert "lease of 100." in machine.run(*asked)

    def records() -> str:
        return machine.attempt(*AS_CORE, "sh", "-c", "cat /var/lib/gateway-dnsmasq/records/*").stdout

    wait_for("the record", lambda: " trunk0.200 " in records())
    assert machine.run(*AS_CORE, "cat", "/var/lib/gateway-dnsmasq/leases")
    assert machine.run("ps", "-o", "user:32=", "-C", "dnsmasq").split() == ["gateway-dnsmasq"] * 2
