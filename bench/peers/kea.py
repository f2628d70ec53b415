"""Kea's DHCPv4 server behind its control agent, Debian's 2.2: HTTP before a Unix socket, as here, in C++.

The agent speaks TLS. Both log at Debian's level. The leases are in the file of Kea's memfile backend.
Source: Kea Administrator Reference Manual 2.2, "Memfile - Basic Storage", "lease_cmds: Lease Commands" and
"TLS/HTTPS Support".
"""

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Address
from pathlib import Path

from bench.load import Request, Target
from bench.processes import listening, running
from gateway_api.cli import certificates
from tests.support.stack import free_port, wait_for

_HOOK = "/usr/lib/x86_64-linux-gnu/kea/hooks/libdhcp_lease_cmds.so"
_FIRST = IPv4Address("10.0.0.10")
_LIFETIME = 86_400
_COLUMNS = (
    "address,hwaddr,client_id,valid_lifetime,expire,subnet_id,fqdn_fwd,fqdn_rev,hostname,state,user_context"
)
#: Leases that requests for one take in turn.
_TAKEN = 100


def is_installed() -> bool:
    return all(map(shutil.which, ("kea-dhcp4", "kea-ctrl-agent"))) and Path(_HOOK).exists()


@contextmanager
def kea(folder: Path, leases: int) -> Iterator[dict[str, Request]]:
    """The requests `status`, `lease` and `leases`."""
    folder.mkdir(parents=True)
    port, socket = free_port(), folder / "dhcp4.sock"
    file = folder / "leases.csv"
    file.write_text("\n".join((_COLUMNS, *_lines(leases), "")))
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    certificates.ensure(certificate, key, "localhost")
    server, agent = folder / "dhcp4.json", folder / "agent.json"
    server.write_text(json.dumps({"Dhcp4": _server(socket, file)}))
    agent.write_text(json.dumps({"Control-agent": _agent(port, socket, certificate, key)}))
    # Where Kea writes its process id, and a lock of its log.
    places = {"KEA_PIDFILE_DIR": str(folder), "KEA_LOCKFILE_DIR": str(folder)}
    url = f"https://localhost:{port}"
    headers = {"Content-Type": "application/json"}

    def request(*commands: dict[str, object]) -> Request:
        bodies = (json.dumps({**command, "service": ["dhcp4"]}) for command in commands)
        return Request(
            url, tuple(Target("/", body) for body in bodies), "POST", headers, certificate=certificate
        )

    with (
        listening(["kea-ctrl-agent", "-c", str(agent)], port, folder / "agent.log", places),
        _serving(server, socket, places),
    ):
        step = max(1, leases // _TAKEN)
        addresses = (str(_FIRST + number) for number in range(0, leases, step))
        found = {
            "status": request({"command": "status-get"}),
            "lease": request(
                *({"command": "lease4-get", "arguments": {"ip-address": each}} for each in addresses)
            ),
            "leases": request({"command": "lease4-get-all"}),
        }
        # A failure has status 200, too.
        for each in found.values():
            (reply,) = json.loads(each.probe()[1])
            assert reply["result"] == 0, reply["text"]
        yield found


@contextmanager
def _serving(configuration: Path, socket: Path, places: dict[str, str]) -> Iterator[None]:
    command = ["kea-dhcp4", "-c", str(configuration)]
    with running(command, configuration.with_suffix(".log"), places):
        wait_for("Kea's socket", socket.exists)
        yield


def _lines(leases: int) -> Iterator[str]:
    expire = int(time.time()) + _LIFETIME
    for number in range(leases):
        mac = (2 << 40 | number).to_bytes(6).hex(":")
        yield f"{_FIRST + number},{mac},,{_LIFETIME},{expire},1,0,0,host{number},0,"


def _server(socket: Path, leases: Path) -> dict[str, object]:
    return {
        # It reads no packets.
        "interfaces-config": {"interfaces": []},
        "control-socket": {"socket-type": "unix", "socket-name": str(socket)},
        "lease-database": {"type": "memfile", "persist": True, "name": str(leases), "lfc-interval": 0},
        "hooks-libraries": [{"library": _HOOK}],
        "valid-lifetime": _LIFETIME,
        "subnet4": [{"id": 1, "subnet": "10.0.0.0/8", "pools": [{"pool": "10.0.0.10 - 10.255.255.250"}]}],
        "loggers": [_logger("kea-dhcp4")],
    }


def _agent(port: int, socket: Path, certificate: Path, key: Path) -> dict[str, object]:
    return {
        "http-host": "127.0.0.1",
        "http-port": port,
        # It takes no TLS without one, also where clients need no certificate.
        "trust-anchor": str(certificate),
        "cert-file": str(certificate),
        "key-file": str(key),
        "cert-required": False,
        "control-sockets": {"dhcp4": {"socket-type": "unix", "socket-name": str(socket)}},
        "loggers": [_logger("kea-ctrl-agent")],
    }


def _logger(name: str) -> dict[str, object]:
    return {"name": name, "output_options": [{"output": "stdout"}], "severity": "INFO"}
