"""The whole gateway with real subscribers, as a client of its API sees it.

The arguments are the folder of FRR's packages, a prepared folder of `make run`, and the file for the log of
all units.
"""

import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.inside import as_accel_ppp, gateway_failures, homes, installed
from tests.support.inside.gateway_world import HOMES, World, follow_journal, note, soon
from tests.support.inside.homes import Line, Renter, run
from tests.support.inside.routers import (
    BEHIND_THE_APPLIANCE,
    BEHIND_THE_NEIGHBOUR,
    routes_of_the_neighbour,
)

ALICE, BOB, CAROL, DAVE, ERIN = (Line(number) for number in range(100, 105))
TWO_TAGS, RENTER = Line(7, 50), Line(400)
#: Of a rate.
TOLERANCE, _MEASUREMENTS = 0.15, 10
MANY = [*(Line(200 + number) for number in range(25)), *(Line(1 + number, 51) for number in range(25))]


def seen_of(world: World, user: str) -> dict[str, Any]:
    """A session as the list, its record, the event stream and the webhook have it."""
    listed = world.online(user)
    return {
        "listed": listed,
        "detail": world.detail(listed),
        "event": world.event("session_up", listed["id"]),
        "delivered": world.delivered("session.up", listed["id"]),
    }


def one_tag(world: World) -> dict[str, Any]:
    seen = seen_of(world, "alice")
    pinged = homes.ping(world.dialers["alice"].device, BEHIND_THE_APPLIANCE)
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
        "mac": homes.mac_of(ALICE),
        "at_home": homes.addresses(world.dialers["alice"].device),
        "pinged": pinged,
        "after": after,
        "interface": interface,
        "vlans": world.demux()["vlans"],
    }


def two_tags(world: World) -> dict[str, Any]:
    return {**seen_of(world, "dave"), "mac": homes.mac_of(TWO_TAGS)}


def dhcp(world: World) -> dict[str, Any]:
    def renter() -> Any:
        listed = world.read("/subscribers?type=dhcp")["sessions"]
        return next(iter(listed), None)

    user = soon("the session of DHCP", renter)["username"]
    seen = seen_of(world, user)
    pinged = homes.ping(RENTER.device, BEHIND_THE_APPLIANCE)
    return {**seen, "mac": homes.mac_of(RENTER), "at_home": homes.addresses(RENTER.device), "pinged": pinged}


def steered(world: World) -> dict[str, Any]:
    """Alice has a shared address, and bob a public one. Behind the appliance and behind the neighbour, there
    is one address each."""
    ways = {"alice": BEHIND_THE_APPLIANCE, "bob": BEHIND_THE_NEIGHBOUR}
    pinged: dict[str, dict[str, bool]] = {}

    def replied() -> bool:
        """True if each got a reply on the way that is theirs."""
        for user in ways:
            device = world.dialers[user].device
            pinged[user] = {address: homes.reaches(device, address) for address in ways.values()}
        return all(pinged[user][address] for user, address in ways.items())

    # The neighbour may have the route a moment before its kernel forwards by it; on a busy machine it may
    # lose it again.
    soon("a reply to each", replied)
    details = {user: world.detail(world.online(user)) for user in ("alice", "bob")}
    return {"pinged": pinged, "details": details, "listed": world.read("/cgnat/sessions")["sessions"]}


def routed(world: World) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        # Each time: on a busy machine a session ends, and its subscriber dials again.
        users = {user: world.online(user) for user in ("alice", "bob")}
        hosts = {user: session["ip_address"] for user, session in users.items()}
        neighbour, bgp = routes_of_the_neighbour(), world.read("/routing/bgp/summary")
        learned = _learned(world)
        if not learned or "ipv4Unicast" not in bgp or not neighbour >= set(hosts.values()):
            return None
        routes = world.read("/routing/routes")["routes"]
        return {
            "neighbour": sorted(neighbour),
            "users": users,
            "routes": {
                user: [route for route in routes if route["dst"] == f"{host}/32"]
                for user, host in hosts.items()
            },
            "bgp": bgp,
            "learned": learned,
        }

    # On a slow machine the core takes its first change of FRR back, and tries again.
    seen: dict[str, Any] = soon("the routes of both", look)
    return seen


def _learned(world: World) -> list[dict[str, Any]]:
    listed: dict[str, Any] = world.read(f"/routing/routes?dst={BEHIND_THE_NEIGHBOUR}/32")
    routes: list[dict[str, Any]] = listed["routes"]
    return routes


def shaped(world: World) -> dict[str, Any]:
    session = world.online("alice")
    # The processor is slow: no rate of the field.
    rates = {"rate_down": "1mbit", "rate_up": "500kbit"}
    answer = world.api.send("PUT", f"/subscribers/{session['id']}/rate", json=rates)
    with homes.iperf_server("appliance", BEHIND_THE_APPLIANCE):
        measured = {
            "down": _throughput(world.dialers["alice"].device, 1e6, down=True),
            "up": _throughput(world.dialers["alice"].device, 5e5, down=False),
        }
    return {"status": answer.status_code, "measured": measured, "after": world.detail(session)}


def _throughput(device: str, expected: float, *, down: bool) -> float:
    """Bits per second, the last measurement of several: on a busy machine, the first ones may be too low."""
    for _ in range(_MEASUREMENTS):
        measured = homes.throughput(BEHIND_THE_APPLIANCE, device, 5, down=down)
        if abs(measured - expected) <= TOLERANCE * expected:
            break
    return measured


def both_modes(world: World) -> dict[str, Any]:
    """alice's session is in the kernel, and carol's in user mode. Neither has a rate that limits it."""
    seen: dict[str, Any] = {"health": world.read("/system/health/detail")["dependencies"]}
    rates = {"rate_down": "1gbit", "rate_up": "1gbit"}
    with homes.iperf_server("appliance", BEHIND_THE_APPLIANCE):
        for user in ("alice", "carol"):
            session, device = world.online(user), world.dialers[user].device
            answer = world.api.send("PUT", f"/subscribers/{session['id']}/rate", json=rates)
            pppd = int(Path(f"/run/{session['interface']}.pid").read_text())
            seen[user] = {
                "access_interface": session["access_interface"],
                "status": answer.status_code,
                "processes": homes.lasting_processes(pppd),
                "down": homes.throughput(BEHIND_THE_APPLIANCE, device, 10, down=True),
                "up": homes.throughput(BEHIND_THE_APPLIANCE, device, 10, down=False),
            }
    return seen


def sandboxed(world: World) -> dict[str, Any]:
    installed.accel_ppp("trunk0")
    soon("what accel-ppp may do", as_accel_ppp.REPORT.exists)
    run("systemctl stop accel-ppp")
    seen: dict[str, Any] = json.loads(as_accel_ppp.REPORT.read_text())
    return seen


def fifty(world: World) -> dict[str, Any]:
    began = time.monotonic()
    for number, line in enumerate(MANY):
        world.dial(line, HOMES[number], 200 + number)

    def all_online() -> Any:
        sessions = world.sessions()
        found = [sessions[user] for user in HOMES if user in sessions and sessions[user]["ip_address"]]
        return found if len(found) == len(HOMES) else None

    # The processor has enough to do.
    sessions = soon("fifty sessions", all_online, every=3)
    seconds = time.monotonic() - began
    for session in sessions:
        world.event("session_up", session["id"])
    return {
        "seconds": round(seconds),
        "sessions": sessions,
        "events": [len(world.events("session_up", session["id"])) for session in sessions],
        "lines": {HOMES[number]: line.access_interface for number, line in enumerate(MANY)},
    }


def main() -> None:
    frr, made, journal = map(Path, sys.argv[1:])
    follow_journal(journal)
    world = World(frr, made)
    homes.add_lines([ALICE, BOB, CAROL, DAVE, ERIN, TWO_TAGS, RENTER, *MANY])
    world.dial(ALICE, "alice", 100)
    world.dial(BOB, "bob", 101)
    world.dial(CAROL, "carol", 102)
    world.dial(TWO_TAGS, "dave", 103)
    world.dial(ERIN, "erin", 104)
    world.renter = Renter(RENTER)
    cases: list[Callable[[World], Any]] = [one_tag, two_tags, dhcp]
    # Its end comes minutes later.
    cases += [gateway_failures.cut_line, routed, steered, shaped, both_modes, sandboxed, fifty]
    cases += gateway_failures.CASES
    seen: dict[str, Any] = {}
    for case in cases:
        note(case.__name__)
        try:
            seen[case.__name__] = case(world)
        except Exception as error:  # noqa: BLE001 - the other cases are worth a look
            seen[case.__name__] = {"error": traceback.format_exception(error)}
            traceback.print_exception(error)
    print(json.dumps(seen))
    world.close()


if __name__ == "__main__":
    main()
