"""Ends of sessions, and what breaks beside them."""

import re
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.inside import homes
from tests.support.inside.gateway_world import CORE, World, kill, pppd_of, processes, soon
from tests.support.inside.homes import run
from tests.support.inside.routers import BEHIND_THE_APPLIANCE, routes_of_the_neighbour
from tests.support.namespaces import network_of


def cut_line(world: World) -> None:
    """The line of erin, for `ends`: no frame passes any more."""
    world.cut = world.online("erin")
    run(f"ip -n {homes.NAMESPACE} link set {world.dialers['erin'].line.device} down")


def ends(world: World) -> dict[str, Any]:
    """Sessions end in different ways, at the same time."""
    users = {"hung_up": "bob", "killed": "frank", "padt": "grace", "resized": "heidi", "silent": "ivan"}
    users["disconnected"] = "Modem hangup"
    sessions = {way: world.online(user) for way, user in users.items()}
    world.dialers["bob"].hang_up()
    for user in ("frank", "grace"):
        world.dialers[user].vanish()
    kill(pppd_of(sessions["killed"]))
    _send_padt(world.dialers["grace"].line, sessions["padt"])
    run(f"ip link set {sessions['resized']['access_interface']} mtu 1498")
    # It cannot reply to the goodbye.
    world.dialers["ivan"].process.send_signal(signal.SIGSTOP)
    statuses = {way: _disconnect(world, sessions[way]) for way in ("disconnected", "silent")}
    sessions["cut"] = world.cut
    seen: dict[str, Any] = {way: world.end_of(session) for way, session in sessions.items()}
    world.dial(world.dialers["frank"].line, "frank", 130)
    for way in ("killed", "disconnected"):
        is_again = partial(_has_another, world, users[way], sessions[way]["id"])
        seen[f"{way}_again"] = soon(f"{users[way]} again", is_again)
    return {**seen, "statuses": statuses}


def _has_another(world: World, user: str, former: int) -> bool:
    session = world.sessions().get(user)
    return bool(session and session["ip_address"] and session["id"] != former)


def _send_padt(line: homes.Line, session: dict[str, Any]) -> None:
    """End the PPPoE session, and not PPP, as the subscriber (RFC 2516 section 5.5)."""
    interface, mac = session["access_interface"], session["mac_address"]
    (number,) = {
        int(found)
        for pid in processes(interface)
        for found in re.findall(rf"[ \0]([0-9]+):{mac}", _command(pid), re.IGNORECASE)
    }
    to = Path(f"/sys/class/net/{interface}/address").read_text()
    head = bytes.fromhex(f"{to}{mac}".replace(":", ""))
    with network_of(homes.namespace_pid()), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.bind((line.device, 0))
        sender.send(head + struct.pack("!HBBHH", 0x8863, 0x11, 0xA7, number, 0))


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def _disconnect(world: World, session: dict[str, Any]) -> list[int]:
    """Return the statuses of DELETE, again while the session is still there."""
    statuses: list[int] = []

    def is_over() -> bool:
        statuses.append(world.api.send("DELETE", f"/subscribers/{session['id']}").status_code)
        return statuses[-1] in (200, 404)

    soon(f"the end of {session['username']}", is_over)
    return statuses


def _shows(command: str, word: str) -> bool:
    """Return True if the output of a command has a word. A command may fail."""
    done = subprocess.run(command.split(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return word in done.stdout.decode()


def repaired(world: World) -> dict[str, Any]:
    """Each part is deleted, and comes back."""
    session = world.online("alice")
    (qos,) = (each for each in world.read("/qos")["sessions"] if each["session_id"] == session["id"])
    ifb, before, parts = qos["ifb_device"], world.repairs(), []
    device, host = session["interface"], session["ip_address"]
    for part, delete, show, expected in (
        ("qdisc", f"tc qdisc del dev {device} root", f"tc qdisc show dev {device} root", "tbf"),
        ("ifb", f"ip link del {ifb}", f"tc qdisc show dev {ifb} root", "tbf"),
        ("rule", "ip rule del priority 1500", "ip rule show", "lookup 100"),
        ("route", f"ip route del {host}/32 table 100", "ip route show table 100", host),
        # Not the route that refuses packets meanwhile, which is a default one too.
        ("handoff", "ip route del default table 100", "ip route show table 100", "default via"),
    ):
        # `run` fails if it was not there. Mostly it is back before the next look.
        run(delete)
        soon(f"the repair of {part}", partial(_shows, show, expected))
        parts.append(part)
    pinged = homes.reaches(world.dialers["alice"].device, BEHIND_THE_APPLIANCE)
    return {"parts": parts, "before": before, "after": world.repairs(), "pinged": pinged}


def core_killed(world: World) -> dict[str, Any]:
    """frank hangs up before the core is back. The event stream may tell this by a gap only; the webhook has a
    message for each event."""
    before = world.sessions()
    run(f"systemctl kill --kill-whom=main --signal=STOP {CORE}")
    run(f"systemctl kill --kill-whom=main --signal=KILL {CORE}")
    pinged = homes.reaches(world.dialers["alice"].device, BEHIND_THE_APPLIANCE)
    world.dialers["frank"].hang_up()
    soon("an active core", lambda: world.api.send("GET", "/subscribers/summary").status_code == 200)

    def is_settled() -> bool:
        now = world.sessions()
        is_whole = now.keys() == before.keys() - {"frank"}
        return is_whole and all(each["state"] == "active" for each in now.values())

    soon("the sessions as they are", is_settled)
    world.delivered("session.down", before["frank"]["id"])
    # Longer than a sweep: a second event would have come.
    time.sleep(8)
    return {
        "before": before,
        "after": world.sessions(),
        "pinged": pinged,
        "ups": {user: len(world.deliveries("session.up", each["id"])) for user, each in before.items()},
        "downs": {user: len(world.deliveries("session.down", each["id"])) for user, each in before.items()},
    }


def pppoe_server_killed(world: World) -> dict[str, Any]:
    """Another subscriber signs on at the same VLAN afterwards."""
    alice, line = world.online("alice"), world.dialers["alice"].line
    (server,) = processes("pppoe-server", "-F", "-I", line.access_interface)
    kill(server)
    world.dial(line, "judy", 131)
    return {
        "before": alice,
        "after": world.online("alice"),
        "other": world.online("judy"),
        "downs": len(world.events("session_down", alice["id"])),
        "server": [server, *processes("pppoe-server", "-F", "-I", line.access_interface)],
    }


def bgpd_killed(world: World) -> dict[str, Any]:
    before = world.sessions()
    (bgpd,) = (pid for pid in processes("/usr/lib/frr/bgpd") if pid not in processes("-N", "far"))
    kill(bgpd)
    during = world.api.send("GET", "/routing/bgp/summary").status_code
    routes = world.api.send("GET", "/routing/routes").status_code

    def is_back() -> bool:
        pids = set(processes("/usr/lib/frr/bgpd")) - set(processes("-N", "far"))
        return bool(pids) and world.online("alice")["ip_address"] in routes_of_the_neighbour()

    soon("the route of alice at the neighbour", is_back)
    return {"during": during, "routes": routes, "before": before, "after": world.sessions()}


PIECES: list[Callable[[World], Any]] = [ends, repaired, core_killed, pppoe_server_killed, bgpd_killed]
