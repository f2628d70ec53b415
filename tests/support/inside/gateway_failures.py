"""Ends of sessions, and what breaks beside them."""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.inside import homes
from tests.support.inside.gateway_world import CORE, HOMES, World, kill, processes, soon
from tests.support.inside.homes import run
from tests.support.inside.routers import (
    BEHIND_THE_APPLIANCE,
    routes_of_the_neighbour,
    udp_at_the_appliance,
)
from tests.support.measuring import seconds_of_a_loop

#: The VLAN of the attacker, without a session; others, each with one; and the seconds of the attack.
ATTACKER, OTHERS, LASTS = 398, HOMES[:20], 60


def cut_line(world: World) -> dict[str, Any]:
    """The line of erin, for `lost_carrier`."""
    world.cut = world.online("erin")
    homes.cut(world.dialers["erin"].line)
    return {}


def disconnected(world: World) -> dict[str, Any]:
    """By DELETE, again while the session is still there. The subscriber's router dials again."""
    session, statuses = world.online("carol"), []

    def is_over() -> bool:
        statuses.append(world.api.send("DELETE", f"/subscribers/{session['id']}").status_code)
        return statuses[-1] in (200, 404)

    soon("the end of carol", is_over)
    again = soon("carol again", lambda: (now := world.sessions().get("carol")) and now["id"] != session["id"])
    return {
        "statuses": statuses,
        "lookup": world.api.send("GET", f"/subscribers/{session['id']}").status_code,
        "again": bool(again),
        **world.end_of(session),
    }


def hung_up(world: World) -> dict[str, Any]:
    session = world.online("bob")
    world.dialers["bob"].hang_up()
    return world.end_of(session)


def lost_carrier(world: World) -> dict[str, Any]:
    return world.end_of(world.cut)


def _shows(command: str, word: str) -> bool:
    """True if the output of a command has a word. A command may fail."""
    done = subprocess.run(command.split(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    return word in done.stdout.decode()


def repaired(world: World) -> dict[str, Any]:
    """Each part is deleted, and comes back."""
    session = world.online("alice")
    (qos,) = (each for each in world.read("/qos")["sessions"] if each["session_id"] == session["id"])
    ifb, before, seconds = qos["ifb_device"], world.repairs(), {}
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
        began = time.monotonic()
        soon(f"the repair of {part}", partial(_shows, show, expected))
        seconds[part] = time.monotonic() - began
    pinged = homes.ping(world.dialers["alice"].device, BEHIND_THE_APPLIANCE)
    return {"back_after": seconds, "before": before, "after": world.repairs(), "pinged": pinged}


def core_killed(world: World) -> dict[str, Any]:
    """One subscriber hangs up before the core is back. The event stream may tell this by a gap only; the
    webhook has a message for each event."""
    before = world.sessions()
    clients = {user: dialer.process.pid for user, dialer in world.dialers.items()}
    run(f"systemctl kill --kill-whom=main --signal=STOP {CORE}")
    run(f"systemctl kill --kill-whom=main --signal=KILL {CORE}")
    pinged = homes.ping(world.dialers["alice"].device, BEHIND_THE_APPLIANCE, 1)
    leaver = HOMES[-1]
    world.dialers[leaver].hang_up()
    soon("an active core", lambda: world.api.send("GET", "/subscribers/summary").status_code == 200)

    def settled() -> Any:
        now = world.sessions()
        is_whole = now.keys() == before.keys() - {leaver}
        return now if is_whole and all(each["state"] == "active" for each in now.values()) else None

    after = soon("the sessions as they are", settled)
    world.delivered("session.down", before[leaver]["id"])
    # Longer than a sweep: a second event would have come.
    time.sleep(8)
    return {
        "before": before,
        "after": world.sessions(),
        "settled": after,
        "pinged": pinged,
        "leaver": leaver,
        "clients_alive": all(
            world.dialers[user].process.poll() is None for user in clients if user not in (leaver, "bob")
        ),
        "ups": {user: len(world.deliveries("session.up", each["id"])) for user, each in before.items()},
        "downs": {user: len(world.deliveries("session.down", each["id"])) for user, each in before.items()},
    }


def pppoe_server_killed(world: World) -> dict[str, Any]:
    """Another subscriber signs on at the same VLAN afterwards."""
    alice, line = world.online("alice"), world.dialers["alice"].line
    (server,) = processes("pppoe-server", "-F", "-I", line.access_interface)
    kill(server)
    world.dial(line, "frank", 105)
    frank = world.online("frank")
    return {
        "before": alice,
        "after": world.online("alice"),
        "other": frank,
        "downs": len(world.events("session_down", alice["id"])),
        "server": [server, *processes("pppoe-server", "-F", "-I", line.access_interface)],
    }


def bgpd_killed(world: World) -> dict[str, Any]:
    before = world.sessions()
    (bgpd,) = (pid for pid in processes("/usr/lib/frr/bgpd") if pid not in processes("-N", "far"))
    kill(bgpd)
    began = time.monotonic()
    during = world.api.send("GET", "/routing/bgp/summary").status_code
    seconds = time.monotonic() - began
    routes = world.api.send("GET", "/routing/routes").status_code

    def is_back() -> bool:
        pids = set(processes("/usr/lib/frr/bgpd")) - set(processes("-N", "far"))
        # On a busy machine she may have lost her session, and got another address.
        return bool(pids) and world.online("alice")["ip_address"] in routes_of_the_neighbour()

    soon("the route of alice at the neighbour", is_back)
    return {
        "during": during,
        "during_seconds": round(seconds, 1),
        "routes": routes,
        "before": before,
        "after": world.sessions(),
    }


def attacked(world: World) -> dict[str, Any]:
    """A minute of all that a line can send and must not, while others ping. A commit has made the limits of
    the demux low before."""
    limits = {"vlans_per_second": 2, "burst": 10, "max_vlans": 1000}
    edit = {"path": "demux.rate_limits", "value": limits}

    def done(path: str, **more: Any) -> bool:
        return bool(world.api.send("POST", path, **more).status_code == 200)

    # On a slow processor, the core that was killed before may still start its services.
    soon("the limits in the candidate", lambda: done("/system/config/set", json=edit))
    soon("the commit of the limits", lambda: done("/system/config/commit"))
    sessions, before = world.sessions(), world.demux()
    others = [world.dialers[user].device for user in OTHERS if user in sessions]
    lost_without = homes.lost(others, BEHIND_THE_APPLIANCE, LASTS)
    (core,) = processes("gateway_api.cli.core", "linux")
    memory, used, began = _memory(core), _seconds_used(), time.monotonic()
    passed = udp_at_the_appliance()
    (trunk,) = json.loads(run("ip -j link show trunk0"))
    words = [ATTACKER, trunk["address"], homes.mac_of(world.dialers[OTHERS[0]].line)]
    words += [sessions[OTHERS[0]]["ip_address"], BEHIND_THE_APPLIANCE, LASTS]
    command = [sys.executable, "-m", "tests.support.inside.attack", *map(str, words)]
    attack = subprocess.Popen(homes.at_home(*command))
    lost = homes.lost(others, BEHIND_THE_APPLIANCE, LASTS)
    attack.wait()
    seconds = time.monotonic() - began
    used = _seconds_used() - used
    soon("a VLAN of the attack", lambda: len(world.demux()["vlans"]) > len(before["vlans"]))
    after = world.demux()
    return {
        "status": attack.returncode,
        "others": len(others),
        "lost": (lost_without, lost),
        "passed": udp_at_the_appliance() - passed,
        "load": used / seconds,
        "seconds_of_a_loop": seconds_of_a_loop(),
        "vlans": len(after["vlans"]) - len(before["vlans"]),
        "allowed": 10 + 2 * (time.monotonic() - began),
        "refused": after["rate_limited_total"] - before["rate_limited_total"],
        "mebibytes": (_memory(core) - memory) / 2**20,
        "before": sessions,
        "after": world.sessions(),
    }


def _seconds_used() -> float:
    """Of a processor, by the core and its sources (cpu.stat of cgroup-v2)."""
    used = 0.0
    for unit in ("gateway-core-linux.service", "gateway-dnsmasq.service", "gateway-pppoe@*.service"):
        for found in Path("/sys/fs/cgroup").rglob(f"{unit}/cpu.stat"):
            used += int(found.read_text().split()[1]) / 1e6
    return used


def _memory(pid: int) -> int:
    """Bytes of a process (proc(5))."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def all_hung_up(world: World) -> dict[str, Any]:
    """Those of the fifty that are left."""
    sessions = world.sessions()
    left = {user: sessions[user] for user in HOMES if user in sessions}
    for user in left:
        world.dialers[user].hang_up()
    soon("the end of all", lambda: not set(left) & set(world.sessions()))
    ends = {user: world.end_of(session) for user, session in left.items()}
    return {"ends": ends, "downs": [len(world.events("session_down", each["id"])) for each in left.values()]}


CASES: list[Callable[[World], Any]] = [
    disconnected,
    hung_up,
    repaired,
    core_killed,
    pppoe_server_killed,
    bgpd_killed,
    attacked,
    lost_carrier,
    all_hung_up,
]
