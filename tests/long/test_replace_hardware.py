"""The page about new hardware: its lines move a gateway with a DHCP subscriber to a machine whose interfaces
have other names, and back."""

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.package.conftest import packages  # noqa: F401 - a fixture
from tests.support.dhcp_site import document
from tests.support.documents import SECRET_HASH
from tests.support.machine import Machine, booted
from tests.support.manual import steps
from tests.support.package import install, state_of
from tests.support.shell import Terminal
from tests.support.stack import Api, wait_for

MAC = "02:00:5e:00:53:01"
VLAN = 1000
MOVE, BACKUP = steps("how-to/replace-hardware.md", "bash"), steps("how-to/backup.md", "shell")
ENVIRONMENT = {"HOME": "/root", "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "COLUMNS": "130"}


@dataclass
class Gateway:
    """A machine with the packages, and with a trunk of one VLAN. Its kernel may have no VLANs, so the VLAN is
    a pair of interfaces; the subscriber's device has the other one."""

    machine: Machine
    trunk: str

    def prepare(self) -> None:
        for name, far in ((self.trunk, "far"), (f"{self.trunk}.{VLAN}", "device")):
            self.machine.run("ip", "link", "add", name, "type", "veth", "peer", "name", far)
            self.machine.run("ip", "link", "set", far, "up")
        self.machine.run("ip", "link", "set", "device", "address", MAC)
        # The core makes its VLANs in this group, and sets them up with its address.
        vlan = f"{self.trunk}.{VLAN}"
        self.machine.run("ip", "link", "set", vlan, "group", "1195463680", "up")
        self.machine.run("ip", "address", "add", "100.64.0.1/32", "dev", vlan)

    def request_address(self, *options: str) -> str:
        """Return the address that the subscriber's device gets."""
        client = ("busybox", "udhcpc", "-f", "-q", "-i", "device", "-s", "/bin/true", "-T", "1", "-t", "60")
        said = self.machine.run(*client, "-n", *options)
        return said.partition("lease of ")[2].split()[0]

    def api(self) -> Api:
        certificate = self.machine.root / "etc/gateway-api/tls/certificate.pem"
        variables = {"GATEWAY_URL": "https://localhost:8443", "GATEWAY_CA": str(certificate)}
        return Api({**variables, "ADMIN_USER": "admin", "ADMIN_PASSWORD": "secret"})

    def sessions(self) -> list[dict[str, Any]]:
        with self.machine.network():
            found: list[dict[str, Any]] = self.api().get("/subscribers", role="admin")["sessions"]
        return found

    def paste(self, lines: str) -> None:
        self.machine.run("bash", "-euc", f"cd; {lines}", timeout=300)


def prepare_linux(gateway: Gateway) -> None:
    """Write a first configuration, whose admin has the password "secret", and start the core."""
    first = document(1)
    first["interfaces"] = {"trunks": [gateway.trunk], "uplinks": ["eth0"]}
    first["demux"]["trunks"] = [gateway.trunk]
    first["cgnat"]["enabled"] = False
    first["api"]["users"] = [{"username": "admin", "role": "admin", "password_hash": SECRET_HASH}]
    path = gateway.machine.root / "etc/gateway-api/first-configuration.json"
    path.write_text(json.dumps(first))
    gateway.machine.run("systemctl", "enable", "--now", "gateway-core-linux")
    wait_for("DHCP", lambda: state_of(gateway.machine, "gateway-dnsmasq") == "active")


@pytest.fixture
def old(packages: dict[str, Path], tmp_path: Path) -> Iterator[Gateway]:  # noqa: F811
    with booted(tmp_path / "old") as machine:
        gateway = Gateway(machine, "eth1")
        install(machine, packages.values())
        gateway.prepare()
        prepare_linux(gateway)
        yield gateway


@pytest.fixture
def new(packages: dict[str, Path], tmp_path: Path) -> Iterator[Gateway]:  # noqa: F811
    with booted(tmp_path / "new") as machine:
        gateway = Gateway(machine, "enp5s0")
        install(machine, packages.values())
        gateway.prepare()
        yield gateway


def copy(source: Gateway, target: Gateway) -> str:
    """Copy the backup, as the page's line for ssh does, and return its path."""
    (folder,) = (source.machine.root / "root").glob("backup-*")
    sent = subprocess.run(["tar", "-C", folder.parent, "-c", folder.name], stdout=subprocess.PIPE, check=True)
    command = target.machine.entering("tar", "-C", "/root", "-x")
    subprocess.run(command, input=sent.stdout, check=True)
    return f"/root/{folder.name}"


def test_a_gateway_moves_to_a_machine_with_other_interfaces_and_back(old: Gateway, new: Gateway) -> None:
    address = old.request_address()
    wait_for("the session", old.sessions)
    with old.machine.network():
        token = old.api().token("admin")
        assert old.api().send("POST", "/system/config/set", token=token, json=HOSTNAME).ok
        assert old.api().send("POST", "/system/config/commit", token=token).ok
    (before,) = old.sessions()

    stopped = time.monotonic()
    old.paste(MOVE["2. Back up the old machine"])
    old.paste(BACKUP["Everything"])
    folder = f"BACKUP={copy(old, new)}\n"
    new.paste(folder + MOVE["3. Change the names of interfaces"])
    restore, _, _ = BACKUP["Restore everything"].partition("systemctl enable --now gateway-core-lab")
    new.paste(folder + restore)
    start, line, look = MOVE["4. Restore on the new machine"].partition("--now gateway-core-linux\n")
    new.paste(start + line)
    wait_for("the session", new.sessions)
    print(f"from the stop to the subscriber on the new machine: {time.monotonic() - stopped:.1f} s")

    # Before the device has sent anything.
    (after,) = new.sessions()
    for field in ("mac_address", "ip_address", "type", "username"):
        assert after[field] == before[field]
    assert after["access_interface"] == f"enp5s0.{VLAN}"
    assert after["id"] > before["id"]
    (new.machine.root / "root/lines").write_text(look)
    # Not with `-e`: health has the exit status 1, because the clock of a container is not synchronized.
    shell = Terminal(new.machine.entering("bash", "-uc", "cd; . ./lines > shown"), ENVIRONMENT, Path("/"))
    shell.expect("Password of admin: ")
    shell.type("secret\n")
    assert shell.end() == 0, shell.shown
    shown = (new.machine.root / "root/shown").read_text()
    assert address in shown
    with new.machine.network():
        configuration, audit, history = (
            # A token of the old machine.
            new.api().send("GET", path, token=token).json()["data"]
            for path in ("/system/config", "/audit", "/subscribers/history")
        )
    assert configuration["system"]["hostname"] == "moved"
    assert configuration["interfaces"]["trunks"] == configuration["demux"]["trunks"] == ["enp5s0"]
    assert "/system/config/commit" in json.dumps(audit)
    reasons = {session["id"]: session["reason"] for session in history["sessions"]}
    assert reasons == {before["id"]: "nas_reboot", after["id"]: None}
    assert new.request_address("-r", address) == address

    old.paste(MOVE["5. Move the cables"])
    back = MOVE["Go back"].partition("systemctl enable")
    new.paste(back[0])
    old.paste("".join(back[1:]))
    wait_for("the old API", lambda: state_of(old.machine, "gateway-api") == "active")
    wait_for("the session", old.sessions)
    assert [session["ip_address"] for session in old.sessions()] == [address]


HOSTNAME = {"path": "system.hostname", "value": "moved"}
