"""The whole gateway with real subscribers, as a client of its API sees it: the machine's short program."""

import json
import socket
import time
from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gateway_core.gateways.linux.kernel.links import read_thresholds
from tests.support.free_radius import FreeRadius, section_of
from tests.support.inside import as_accel_ppp, attack, false_sources, gateway_failures, homes, installed
from tests.support.inside.gateway_world import World, pppd_of, soon
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
    """alice's device learns her prefix from dnsmasq, and a host outside reaches it."""
    device = world.dialers["alice"].device
    address = soon("an IPv6 address", lambda: homes.addresses(device, "inet6"))[0]
    soon("a reply to the outside", lambda: is_reached_from_the_neighbour(address))
    return {"prefix": world.detail(world.online("alice"))["ipv6_prefix"], "address": address}


def mtu(world: World) -> dict[str, int]:
    """alice's client asks for packets of 1500 bytes (RFC 4638), and bob's does not."""
    interfaces = {user: world.online(user)["interface"] for user in ("alice", "bob")}
    return {user: int(Path(f"/sys/class/net/{name}/mtu").read_text()) for user, name in interfaces.items()}


def neighbours(world: World) -> list[int]:
    """The kernel has one table for all network namespaces, so this shows in a machine of its own."""
    found = read_thresholds(socket.AF_INET)
    assert found
    return list(found)


def steered(world: World) -> dict[str, Any]:
    """alice has a shared address, and bob a public one. There is one address behind the appliance, and one
    behind the neighbour."""
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
    """alice's session is in the kernel, and carol's in user mode."""
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
    """A subscriber who knows no password."""
    world.dial(LINES["mallory"], 'mal"lory', 120, password="wrong")
    (failure, *more) = soon("a failure", lambda: world.read("/subscribers/failed-sign-ons")["failures"])
    world.dialers.pop('mal"lory').vanish()
    return {"failure": failure, "more": more, "mac": homes.mac_of(LINES["mallory"])}


def committed(world: World) -> dict[str, Any]:
    """A commit takes the VLANs with two tags away, limits the making of VLANs, and names a RADIUS server that
    knows any user."""
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
    """All that a line can send and must not."""
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
    """From a subscriber's device, as `attack` sends them."""
    with network_of(homes.namespace_pid()), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        sender.sendto(b"honest", (BEHIND_THE_APPLIANCE, 9))


def false_sources_reach_others(_: World) -> dict[str, dict[str, dict[str, int]]]:
    """In a network of its own."""
    with TemporaryDirectory() as folder:
        return false_sources.run(Path(folder))


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
        gateway_failures.cut_line,
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
        *gateway_failures.PIECES,
    ]
    run_pieces(pieces, world)
    world.close()


if __name__ == "__main__":
    main()
