"""accel-ppp and FreeRADIUS, both real, with subscribers of DHCP, by the file that the gateway renders.

accel-ppp is tested where it is installed: Debian has no package of it. `test_virtual_machine` has pppd.
"""

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest

from gateway_api.core.configuration.rules import load
from gateway_api.core.gateways.linux.daemons.accel_ppp import COMMAND_LINE, AccelPppReload
from gateway_api.core.gateways.linux.daemons.daemon import SERVICES, PlacedFiles
from gateway_api.core.gateways.linux.sources.accel_cli import CommandLine
from gateway_api.core.gateways.linux.sources.source import SourceUnavailable
from tests.support.documents import valid_document
from tests.support.free_radius import INTERIM, FreeRadius, section_of
from tests.support.namespaces import can, inside, ip, neighbour, network_namespace
from tests.support.stack import wait_for

pytestmark = [
    pytest.mark.accel,
    pytest.mark.skipif(not shutil.which("accel-pppd"), reason="accel-ppp is not installed"),
    pytest.mark.skipif(not shutil.which("freeradius"), reason="FreeRADIUS is not installed"),
    pytest.mark.skipif(
        not can("ip link add v type veth peer name w"), reason="needs to be root, and a kernel with veth"
    ),
]

_INTERFACES = [f"trunk0.{tag}" for tag in range(400, 405)]
_PASSWORD = "of-the-command-line"
_SHOW = "show sessions username,ip,state,uptime"


class Bng:
    """accel-ppp with two servers, `first` and `second`, and a host with a DHCP client for each interface."""

    def __init__(self, folder: Path, homes: int, first: FreeRadius, second: FreeRadius) -> None:
        self.first, self.second = first, second
        self._folder, self._homes = folder, homes
        self._clients: list[subprocess.Popen[bytes]] = []
        document = valid_document()
        document["interfaces"]["trunks"] = document["demux"]["trunks"] = ["trunk0"]
        document["radius"] = section_of(
            first, second, timeout=1, max_try=2, dead_time=2, nas_ip_address="127.0.0.9", bind="127.0.0.9"
        )
        self._command_line = CommandLine(COMMAND_LINE, password=_PASSWORD)
        daemon = AccelPppReload(PlacedFiles(folder), self._command_line)
        text = daemon.render(load(document))["accel-ppp.conf"]
        for former, other in ((str(SERVICES), str(folder)), ("/var/log/accel-ppp", str(folder))):
            text = text.replace(former, other)
        (folder / "accel-ppp.conf").write_text(text)
        (folder / "accel-ppp-password").write_text(f"password={_PASSWORD}\n")
        (folder / "ipoe-interfaces").write_text("".join(f"interface={name}\n" for name in _INTERFACES))
        (folder / "chap-secrets").write_text("")
        script = folder / "lease"
        script.write_text("#!/bin/sh\n")
        script.chmod(0o755)
        self._process = subprocess.Popen(["accel-pppd", "-c", str(folder / "accel-ppp.conf")])
        wait_for("accel-ppp", self._replies)

    def close(self) -> None:
        for process in (*self._clients, self._process):
            process.kill()
            process.wait()

    def ask(self, interface: str, *options: str) -> None:
        """A subscriber asks for an address until there is one."""
        command = ["busybox", "udhcpc", "-f", "-i", interface.replace("trunk", "cpe"), "-T", "1", "-t", "300"]
        command += ["-s", str(self._folder / "lease"), *options]
        self._clients.append(subprocess.Popen(inside(self._homes, *command), stderr=subprocess.DEVNULL))

    def sign_on(self, interface: str, *options: str) -> None:
        self.ask(interface, *options)
        wait_for(f"the session on {interface}", lambda: interface in self.sessions())

    def sessions(self) -> dict[str, str]:
        """The addresses of active sessions, by user name."""
        lines = self._command_line.run(_SHOW).decode().splitlines()[2:]
        cells = [[cell.strip() for cell in line.split("|")] for line in lines]
        return {user: address for user, address, state, _ in cells if state == "active"}

    def reload(self) -> None:
        self._process.send_signal(signal.SIGUSR1)

    def _replies(self) -> bool:
        assert self._process.poll() is None, (self._folder / "core.log").read_text()
        try:
            return bool(self._command_line.run("show stat"))
        except SourceUnavailable:
            return False


@pytest.fixture
def bng(tmp_path: Path) -> Iterator[Bng]:
    with network_namespace(), neighbour() as homes:
        for name in _INTERFACES:
            home = name.replace("trunk", "cpe")
            ip(f"link add {name} type veth peer name {home} netns {homes}", f"link set {name} up")
            ip(f"address add 100.64.0.1/32 dev {name}")
            subprocess.run(inside(homes, "ip", "link", "set", home, "up"), check=True)
        servers = [FreeRadius(IPv4Address(f"127.0.0.{n}"), tmp_path / f"radius{n}") for n in (1, 2)]
        try:
            wait_for("the servers", lambda: all(server.is_ready() for server in servers))
            made = Bng(tmp_path, homes, *servers)
            try:
                yield made
            finally:
                made.close()
        finally:
            for server in servers:
                server.kill()


def updates(server: FreeRadius, interface: str) -> Callable[[], Any]:
    """True when the server has had another update of the accounting of a session."""
    before = server.accounted("Interim-Update", interface)
    return lambda: server.accounted("Interim-Update", interface) > before


def test_no_session_of_accel_ppp_ends_while_no_radius_server_replies(bng: Bng) -> None:
    one, other, third, last, _ = _INTERFACES
    bng.sign_on(one)
    wait_for("an update", updates(bng.first, one))
    bng.first.kill()
    bng.sign_on(other)
    wait_for("its start at the other server", lambda: bng.second.accounted("Start", other))
    wait_for("an update at the other server", updates(bng.second, one))
    bng.second.kill()
    before = bng.sessions()
    bng.ask(third)
    subprocess.run(["sleep", str(5 * INTERIM)], check=True)
    assert bng.sessions() == before and before.keys() == {one, other}
    bng.first.start()
    wait_for("an update at the first server", updates(bng.first, one))
    wait_for("those who waited", lambda: third in bng.sessions())
    bng.sign_on(last)
    assert before.items() <= bng.sessions().items()
    bng.reload()
    wait_for("an update after a reload", updates(bng.first, one))
    assert before.items() <= bng.sessions().items()


def test_radius_hears_of_the_gateway_and_of_the_line_of_a_subscriber(bng: Bng) -> None:
    # Option 82 with a circuit id and a remote id (RFC 3046), as an access node adds it.
    bng.sign_on(_INTERFACES[0], "-x", "0x52:0104706f727402026162")
    wait_for("the accounting", lambda: bng.first.accounted("Start", _INTERFACES[0]))
    heard = bng.first.heard()
    assert "NAS-IP-Address = 127.0.0.9" in heard
    assert "ADSL-Agent-Circuit-Id = 0x706f7274" in heard
    assert "ADSL-Agent-Remote-Id = 0x6162" in heard
