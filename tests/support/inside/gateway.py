"""The whole gateway with real subscribers, as a client of its API sees it: the machine's short program."""

import json
import re
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gateway_core.gateways.linux.kernel.links import read_thresholds
from tests.support.free_radius import FreeRadius, section_of
from tests.support.inside import as_accel_ppp, attack, false_sources, homes, installed
from tests.support.inside.gateway_world import CORE, World, kill, pppd_of, processes, soon
from tests.support.inside.homes import Line, run
from tests.support.inside.routers import (
    BEHIND_THE_APPLIANCE,
    BEHIND_THE_NEIGHBOUR,
    is_reached_from_the_neighbour,
    routes_of_the_neighbour,
    udp_at_the_appliance,
)
from tests.support.namespaces import network_of
from tests.support.virtual_machine import run_pieces

#: The lines of the subscribers, by user name. dave has two tags.
LINES = {
    name: Line(number)
    for number, name in enumerate(("alice", "bob", "carol", "erin", "frank", "grace", "heidi", "ivan"), 100)
}
LINES |= {"dave": Line(7, 50), "mallory": Line(150), "Modem hangup": Line(151), "judy": Line(152)}
RENTER, ATTACKER = Line(400), Line(398)
#: What the administrator has set before the first start of the gateway.
HIGHER_THRESHOLD = 200_000
_RADIUS = Path("/run/radius")
_ATTACK_SECONDS = 10


def seen_of(world: World, user: str) -> dict[str, Any]:
    """Return a session as the list, its record, the event stream and the webhook have it."""
    listed = world.online(user)
    return {
        "listed": listed,
        "detail": world.detail(listed),
        "event": world.event("session_up", listed["id"]),
        "delivered": world.delivered("session.up", listed["id"]),
    }


def one_tag(world: World) -> dict[str, Any]:
    seen = seen_of(world, "alice")
    pinged = homes.reaches(world.dialers["alice"].device, BEHIND_THE_APPLIANCE)
    # It has it from another protocol of PPP than IPv4.
    soon("its IPv6 address", lambda: world.detail(seen["listed"])["ipv6_address"])
    after = world.detail(seen["listed"])

    def counted() -> Any:
        # The list of interfaces may be a second old.
        interface = world.interface(seen["listed"]["interface"])
        return interface if interface["stats"]["rx_bytes"] >= after["bytes_in"] else None

    interface = soon("the same traffic at the interface", counted)
    return {
        **seen,
        "mac": homes.mac_of(LINES["alice"]),
        "at_home": homes.addresses(world.dialers["alice"].device),
        "pinged": pinged,
        "after": after,
        "interface": interface,
        "vlans": world.demux()["vlans"],
    }


def two_tags(world: World) -> dict[str, Any]:
    return {**seen_of(world, "dave"), "mac": homes.mac_of(LINES["dave"])}


def dhcp(world: World) -> dict[str, Any]:
    def renter() -> Any:
        listed = world.read("/subscribers?type=dhcp")["sessions"]
        return next(iter(listed), None)

    user = soon("the session of DHCP", renter)["username"]
    seen = seen_of(world, user)
    pinged = homes.reaches(RENTER.device, BEHIND_THE_APPLIANCE)
    return {**seen, "mac": homes.mac_of(RENTER), "at_home": homes.addresses(RENTER.device), "pinged": pinged}


def ipv6(world: World) -> dict[str, Any]:
    """Return the prefix that alice's device learns from dnsmasq, once a host outside reaches it."""
    device = world.dialers["alice"].device
    address = soon("an IPv6 address", lambda: homes.addresses(device, "inet6"))[0]
    soon("a reply to the outside", lambda: is_reached_from_the_neighbour(address))
    return {"prefix": world.detail(world.online("alice"))["ipv6_prefix"], "address": address}


def mtu(world: World) -> dict[str, int]:
    """Return the MTU of alice, whose client asks for 1500 bytes (RFC 4638), and of bob, whose does not."""
    interfaces = {user: world.online(user)["interface"] for user in ("alice", "bob")}
    return {user: int(Path(f"/sys/class/net/{name}/mtu").read_text()) for user, name in interfaces.items()}


def neighbours(world: World) -> list[int]:
    """Return the kernel's thresholds of neighbours, which only a machine of its own may raise."""
    found = read_thresholds(socket.AF_INET)
    assert found
    return list(found)


def steered(world: World) -> dict[str, Any]:
    """Ping from alice, who has a shared address, and from bob, who has a public one. One address is behind
    the appliance, and one behind the neighbour."""
    ways = {"alice": BEHIND_THE_APPLIANCE, "bob": BEHIND_THE_NEIGHBOUR}
    pinged: dict[str, dict[str, bool]] = {}

    def replied() -> bool:
        """Return True if each got a reply on the way that is theirs."""
        for user in ways:
            device = world.dialers[user].device
            pinged[user] = {address: homes.reaches(device, address) for address in ways.values()}
        return all(pinged[user][address] for user, address in ways.items())

    # The neighbour may have the route a moment before its kernel forwards by it.
    soon("a reply to each", replied)
    details = {user: world.detail(world.online(user)) for user in ("alice", "bob")}
    return {"pinged": pinged, "details": details, "listed": world.read("/cgnat/sessions")["sessions"]}


def routed(world: World) -> dict[str, Any]:
    users = {user: world.online(user) for user in ("alice", "bob")}
    hosts = {user: session["ip_address"] for user, session in users.items()}

    def look() -> dict[str, Any] | None:
        neighbour, bgp = routes_of_the_neighbour(), world.read("/routing/bgp/summary")
        learned = world.read(f"/routing/routes?dst={BEHIND_THE_NEIGHBOUR}/32")["routes"]
        if not learned or "ipv4Unicast" not in bgp or not neighbour >= set(hosts.values()):
            return None
        return {"neighbour": sorted(neighbour), "bgp": bgp, "learned": learned}

    seen: dict[str, Any] = soon("the routes of both", look)
    routes = world.read("/routing/routes")["routes"]
    own = {user: [one for one in routes if one["dst"] == f"{host}/32"] for user, host in hosts.items()}
    return {**seen, "users": users, "routes": own}


def limited(world: World) -> dict[str, Any]:
    session, device = world.online("alice"), world.dialers["alice"].device
    # The processor is slow: no rate of the field.
    rates = {"rate_down": "1mbit", "rate_up": "500kbit"}
    answer = world.api.send("PUT", f"/subscribers/{session['id']}/rate", json=rates)
    with homes.iperf_server("appliance", BEHIND_THE_APPLIANCE):
        measured = {
            direction: homes.throughput(BEHIND_THE_APPLIANCE, device, 5, down=direction == "down")
            for direction in ("down", "up")
        }
    return {"status": answer.status_code, "measured": measured, "after": world.detail(session)}


def both_modes(world: World) -> dict[str, Any]:
    """Return the processes of alice's session in the kernel, and of carol's in user mode."""
    seen: dict[str, Any] = {"health": world.read("/system/health/detail")["dependencies"]}
    for user in ("alice", "carol"):
        seen[user] = homes.lasting_processes(pppd_of(world.online(user)))
    return seen


def sandboxed(_: World) -> dict[str, Any]:
    installed.accel_ppp("trunk0")
    soon("what accel-ppp may do", as_accel_ppp.REPORT.exists)
    run("systemctl stop accel-ppp")
    seen: dict[str, Any] = json.loads(as_accel_ppp.REPORT.read_text())
    return seen


def refused(world: World) -> dict[str, Any]:
    """Dial as a subscriber with a wrong password, and return the failed sign-on."""
    world.dial(LINES["mallory"], 'mal"lory', 120, password="wrong")
    (failure, *more) = soon("a failure", lambda: world.read("/subscribers/failed-sign-ons")["failures"])
    world.dialers.pop('mal"lory').vanish()
    return {"failure": failure, "more": more, "mac": homes.mac_of(LINES["mallory"])}


def committed(world: World) -> dict[str, Any]:
    """Commit a configuration without VLANs of two tags, with a limit on the making of VLANs, and with a
    RADIUS server that knows any user."""
    server = FreeRadius(IPv4Address("127.0.0.1"), _RADIUS)
    dave, before = world.online("dave"), world.whole_sessions()
    soon("the RADIUS server", server.is_ready)
    profiles = [
        one for one in world.read("/system/config")["demux"]["vlan_profiles"] if one["name"] != "pppoe_qinq"
    ]
    world.commit(
        {
            "radius": section_of(server),
            "demux.vlan_profiles": profiles,
            "demux.rate_limits": {"vlans_per_second": 2, "burst": 10, "max_vlans": 1000},
        }
    )
    end = world.end_of(dave)
    world.dial(LINES["Modem hangup"], "Modem hangup", 121)
    listed = world.online("Modem hangup")
    soon("the start of accounting", lambda: server.accounted("Start", "Modem hangup"))
    return {
        "end": end,
        "before": before,
        "after": world.whole_sessions(),
        "vlans": [vlan["name"] for vlan in world.demux()["vlans"]],
        "devices": [path.name for path in Path("/sys/class/net").glob("trunk0.*")],
        "access_interface": listed["access_interface"],
        "starts": server.accounted("Start", "Modem hangup"),
    }


def attacked(world: World) -> dict[str, Any]:
    """Send all that a line can send and must not."""
    before, sessions = world.demux(), world.whole_sessions()
    began, passed = time.monotonic(), udp_at_the_appliance()
    _send_datagram(world.dialers["alice"].device)
    honest = soon("an honest datagram", lambda: udp_at_the_appliance() - passed)
    status = attack.start(ATTACKER, LINES["alice"], sessions["alice"]["ip_address"], _ATTACK_SECONDS).wait()
    soon("a VLAN of the attack", lambda: len(world.demux()["vlans"]) > len(before["vlans"]))
    after = world.demux()
    return {
        "status": status,
        "honest": honest,
        "passed": udp_at_the_appliance() - passed - honest,
        "vlans": len(after["vlans"]) - len(before["vlans"]),
        "allowed": 10 + 2 * (time.monotonic() - began),
        "refused": after["rate_limited_total"] - before["rate_limited_total"],
        "before": sessions,
        "after": world.whole_sessions(),
    }


def _send_datagram(device: str) -> None:
    """Send a datagram from a subscriber's device, as `attack` sends them."""
    with network_of(homes.namespace_pid()), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        sender.sendto(b"honest", (BEHIND_THE_APPLIANCE, 9))


def false_sources_reach_others(_: World) -> dict[str, dict[str, dict[str, int]]]:
    """Run the trial of false sources, in a network of its own."""
    with TemporaryDirectory() as folder:
        return false_sources.run(Path(folder))


# Ends of sessions, and what breaks beside them.


def cut_line(world: World) -> None:
    """Cut the line of erin, for `ends`: no frame passes any more."""
    world.cut = world.online("erin")
    run(f"ip -n {homes.NAMESPACE} link set {world.dialers['erin'].line.device} down")


def ends(world: World) -> dict[str, Any]:
    """End sessions in different ways, at the same time."""
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
    """Delete each part of a session in the kernel, and wait until it comes back."""
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
    """Kill the core. frank hangs up before it is back: the event stream may tell this by a gap only, and
    the webhook has a message for each event."""
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
    """Kill the server of alice's VLAN, and have another subscriber sign on there afterwards."""
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


def main() -> None:
    Path("/proc/sys/net/ipv4/neigh/default/gc_thresh2").write_text(f"{HIGHER_THRESHOLD}\n")
    world = World([*LINES.values(), RENTER, ATTACKER])
    homes.rent(RENTER)
    for unit, user in enumerate(
        ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan"), 100
    ):
        options = ("mtu", "1492", "mru", "1492") if user == "bob" else ()
        world.dial(LINES[user], user, unit, *options)
    pieces: list[Callable[[World], Any]] = [
        one_tag,
        two_tags,
        dhcp,
        # Its end comes minutes later.
        cut_line,
        ipv6,
        mtu,
        neighbours,
        steered,
        routed,
        limited,
        both_modes,
        refused,
        committed,
        attacked,
        false_sources_reach_others,
        sandboxed,
        ends,
        repaired,
        core_killed,
        pppoe_server_killed,
        bgpd_killed,
    ]
    run_pieces(pieces, world)
    world.close()


if __name__ == "__main__":
    main()
