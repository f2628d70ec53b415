"""The whole gateway on one machine: the core, the API, FRR, and the services that the core starts through
systemd; with a client of the event stream and a receiver of webhooks."""

import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from gateway_api.cli.run import RunFolder
from tests.support.inside import homes, installed, routers
from tests.support.inside.homes import run
from tests.support.receivers import Receiver
from tests.support.sse import Collector, Stream
from tests.support.stack import PATIENCE, Api, running_api
from tests.support.virtual_machine import SHARED

#: The default rates, bits per second.
DOWN, UP = 50_000_000, 10_000_000
#: Of all subscribers. FreeRADIUS knows it too.
PASSWORD = "secret"
SUBSCRIBERS = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan")
#: Of bob alone: an address of the world, which is not steered.
PUBLIC = "203.0.113.10"

CORE = "gateway-core-linux.service"
#: The access interface whose sessions are in user mode.
USER_MODE = homes.Line(102).access_interface
_STATE = Path("/var/lib/gateway-tests")
_SOCKET = Path("/run/gateway-core/core.sock")

_SECTIONS: dict[str, Any] = {
    "interfaces": {"trunks": ["trunk0"], "uplinks": ["uplink0", "cgnat0"]},
    "radius": {"server": None, "secret": None},
    "cgnat": {
        "enabled": True,
        "vrf_name": "cgnat",
        "vrf_table": 100,
        "handoff_interface": "cgnat0",
        "handoff_gateway": "10.255.1.2",
        "source_range": "100.64.0.0/10",
    },
    "qos": {"default_down": f"{DOWN}bit", "default_up": f"{UP}bit"},
    "demux": {
        "trunks": ["trunk0"],
        "vlan_profiles": [
            {"name": name, "type": type, "vlan_range": inner, "outer_vlan_range": outer,
             "overhead_profile": profile}
            for name, type, inner, outer, profile in (
                ("pppoe", "pppoe", "100-399", None, "pppoe_ethernet"),
                ("pppoe_qinq", "pppoe", "1-99", "50-59", "pppoe_qinq"),
                ("dhcp", "dhcp", "400-499", None, "ipoe_ethernet"),
            )
        ],
        "rate_limits": {"vlans_per_second": 100, "burst": 200, "max_vlans": 1000},
        "idle_timeout": 3600,
    },
    "bgp": {
        "as_number": 64512,
        "router_id": "10.255.0.1",
        "neighbors": [{"address": "10.255.0.2", "remote_as": 64513}],
        "announce": "hosts",
        "networks": [f"{PUBLIC}/32"],
        "accept": [f"{routers.BEHIND_THE_NEIGHBOUR}/32"],
    },
    "subscribers": {
        "ipv6_range": routers.SUBSCRIBERS,
        "local": [
            {"username": name, "password": PASSWORD, "ip_address": PUBLIC if name == "bob" else None}
            for name in SUBSCRIBERS
        ],
    },
}  # fmt: skip


def soon(what: str, ready: Callable[[], Any], every: float = 0.5) -> Any:
    """Return the first true value of `ready()`, which is called each `every` seconds."""
    deadline = time.monotonic() + PATIENCE
    while not (value := ready()):
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(every)
    return value


class World:
    """The gateway and its networks. The folder SHARED has Debian's packages of FRR in `frr`, and in `made` a
    prepared folder of `make run`: in the emulator, its certificate and hashes would take a minute."""

    def __init__(self, lines: Iterable[homes.Line]) -> None:
        follow_journal()
        homes.make_trunk()
        homes.add_lines(lines)
        routers.install_frr(SHARED / "frr" / "root")
        routers.make_networks()
        run("systemctl start --no-block frr")
        _hide_plugin(USER_MODE)
        installed.install()
        routers.start_neighbour()
        self.dialers: dict[str, homes.Dialer] = {}
        #: The session whose line was cut.
        self.cut: dict[str, Any] = {}
        self._stack = ExitStack()
        folder = RunFolder(shutil.copytree(SHARED / "made", _STATE))
        (_STATE / "secret").write_text(secrets.token_hex(32))
        factory = json.loads(folder.factory.read_text()) | _SECTIONS
        (installed.CONFIGURATION / "first-configuration.json").write_text(json.dumps(factory))
        run(f"systemctl start --no-block {CORE}")
        url = self._stack.enter_context(running_api(_SOCKET, _STATE, 1, "gateway-core"))
        names = {"ADMIN_USER": "admin", "OPERATOR_USER": "operator"}
        passwords = {f"{name.upper()}_PASSWORD": password for name, password in folder.passwords.items()}
        self.api = Api({"GATEWAY_URL": url, "GATEWAY_CA": str(folder.certificate), **names, **passwords})
        soon("the core's reply", lambda: self.api.send("GET", "/system/health", None).status_code == 200)
        self.receiver = self._stack.enter_context(Receiver())
        hook = {"url": self.receiver.url, "events": ["session.up", "session.down"]}
        assert self.api.send("POST", "/webhooks", json=hook).status_code == 201
        self.stream = self._stack.enter_context(Collector(self._listen))

    def _listen(self, headers: Mapping[str, str]) -> Stream:
        certificate, token = self.api.environment["GATEWAY_CA"], self.api.token("operator")
        stream = Stream(self.api.url, certificate, token, headers=headers)
        if stream.status != 200:
            stream.close()
            raise ConnectionRefusedError(stream.status)
        return stream

    def close(self) -> None:
        self._stack.close()

    def dial(self, line: homes.Line, user: str, unit: int, *options: str, password: str = PASSWORD) -> None:
        self.dialers[user] = homes.Dialer(line, user, password, unit, *options)

    def commit(self, changes: Mapping[str, Any]) -> None:
        """Commit values by their paths. A core that still starts its services refuses that for a while."""

        def is_done(path: str, **more: Any) -> bool:
            answer = self.api.send("POST", path, **more)
            assert answer.status_code == 200 or answer.status_code >= 500, answer.text
            return answer.status_code == 200

        for path, value in changes.items():
            edit = {"path": path, "value": value}
            soon(path, partial(is_done, "/system/config/set", json=edit))
        soon("the commit", partial(is_done, "/system/config/commit"))

    # What a client of the API sees

    def read(self, path: str) -> dict[str, Any]:
        """Return the data of a response. On a slow processor, the core may reply too late at first."""

        def answer() -> Any:
            said = self.api.send("GET", path, "operator")
            return said if said.status_code == 200 else None

        data: dict[str, Any] = soon(path, answer).json()["data"]
        return data

    def sessions(self) -> dict[str, dict[str, Any]]:
        """Return the sessions by user name."""
        return {each["username"]: each for each in self.read("/subscribers")["sessions"]}

    def whole_sessions(self) -> dict[str, dict[str, Any]]:
        """Return the sessions without the one whose line was cut, which ends at some time."""
        return {user: one for user, one in self.sessions().items() if one["id"] != self.cut.get("id")}

    def online(self, user: str) -> dict[str, Any]:
        """Return the session of a user, once it has an address."""

        def found() -> dict[str, Any] | None:
            session = self.sessions().get(user)
            return session if session and session["ip_address"] else None

        session: dict[str, Any] = soon(f"the session of {user}", found)
        return session

    def detail(self, session: dict[str, Any]) -> dict[str, Any]:
        return self.read(f"/subscribers/{session['id']}")

    def events(self, name: str, id: int) -> list[dict[str, Any]]:
        """Return the events of a session with this name in the event stream."""
        found = [message for message in self.stream.messages if message.name == name]
        return [message.data for message in found if message.data["id"] == id]

    def event(self, name: str, id: int) -> dict[str, Any]:
        """Wait for the first such event, and return it."""
        found: dict[str, Any] = soon(f"{name} of {id}", lambda: self.events(name, id))[0]
        return found

    def deliveries(self, name: str, id: int) -> list[dict[str, Any]]:
        """Return the messages to the webhook for a session, each once: an attempt may be repeated."""
        bodies = {one.id: json.loads(one.body) for one in self.receiver.received}
        return [body for body in bodies.values() if body["event"] == name and body["data"]["id"] == id]

    def delivered(self, name: str, id: int) -> dict[str, Any]:
        """Wait for the first such message to the webhook, and return it."""
        found: dict[str, Any] = soon(f"{name} of {id} at the webhook", lambda: self.deliveries(name, id))[0]
        return found

    def end_of(self, session: dict[str, Any]) -> dict[str, Any]:
        """Return how a session ended in the event stream and at the webhook, and whether it is listed."""
        event = self.event("session_down", session["id"])
        delivered = self.delivered("session.down", session["id"])
        listed = [each["id"] for each in self.sessions().values()]
        return {
            "event": event,
            "delivered": delivered,
            "is_listed": session["id"] in listed,
            "downs": len(self.events("session_down", session["id"])),
        }

    def interface(self, name: str) -> dict[str, Any]:
        found = (each for each in self.read("/interfaces")["interfaces"] if each["name"] == name)
        interface: dict[str, Any] = next(found)
        return interface

    def demux(self) -> dict[str, Any]:
        return self.read("/demux/state")

    def repairs(self) -> dict[str, int]:
        """Return the number of repairs by kind, from the metrics."""
        prefix = 'gateway_core_repairs_total{kind="'
        lines = self.api.send("GET", "/metrics", None).text.splitlines()
        pairs = (line.removeprefix(prefix).split('"} ') for line in lines if line.startswith(prefix))
        return {kind: int(float(number)) for kind, number in pairs}


def _hide_plugin(interface: str) -> None:
    """Hide the plugin from the interface's pppoe-server, which falls back to user mode."""
    (plugin,) = Path("/usr/lib/pppd").glob("*/rp-pppoe.so")
    drop_in = Path(f"/etc/systemd/system/gateway-pppoe@{interface}.service.d/tests.conf")
    drop_in.parent.mkdir()
    drop_in.write_text(f"[Service]\nInaccessiblePaths={plugin.resolve()}\n")


def processes(*words: str) -> Iterator[int]:
    """Return the ids of processes whose command line has these words, in this order."""
    wanted = "\0".join(words).encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if wanted in command and int(entry.name) != os.getpid():
            yield int(entry.name)


def pppd_of(session: Mapping[str, Any]) -> int:
    """Return the process id of the gateway's pppd."""
    return int(Path(f"/run/{session['interface']}.pid").read_text())


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    soon(f"the end of {pid}", lambda: not Path(f"/proc/{pid}").exists())


def follow_journal() -> None:
    """Write the log of all units into the file `journal` of SHARED."""
    with (SHARED / "journal").open("ab") as log:
        subprocess.Popen(["journalctl", "--follow", "--no-tail", "--output=short-monotonic"], stdout=log)
