"""Many subscribers of the whole gateway, and what takes minutes: the long program of the machine."""

import resource
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from tests.support.free_radius import FreeRadius, section_of
from tests.support.inside import attack, homes
from tests.support.inside.gateway_world import World, pppd_of, processes, soon
from tests.support.inside.homes import Line
from tests.support.inside.routers import BEHIND_THE_APPLIANCE, udp_at_the_appliance
from tests.support.virtual_machine import run_pieces

#: The second one is in user mode.
ALICE, CAROL, ATTACKER = Line(100), Line(102), Line(398)
RADIUS = {"bob": Line(120), "dave": Line(121), "erin": Line(122)}
HOMES = {
    f"home{number}": line
    for number, line in enumerate([*map(Line, range(200, 225)), *(Line(inner, 51) for inner in range(1, 26))])
}
#: Those beside an attack, and its seconds.
OTHERS, LASTS = list(HOMES)[:20], 60


def both_modes(world: World) -> dict[str, Any]:
    """Return the throughput of a session in the kernel and of one in user mode. No rate limits them."""
    seen: dict[str, Any] = {}
    rates = {"rate_down": "1gbit", "rate_up": "1gbit"}
    with homes.iperf_server("appliance", BEHIND_THE_APPLIANCE):
        for user in ("alice", "carol"):
            session, device = world.online(user), world.dialers[user].device
            assert world.api.send("PUT", f"/subscribers/{session['id']}/rate", json=rates).status_code == 200
            seen[user] = {
                direction: homes.throughput(BEHIND_THE_APPLIANCE, device, 10, down=direction == "down")
                for direction in ("down", "up")
            }
    return seen


class RadiusAway:
    """Two RADIUS servers that go away and come back, and the sessions of their subscribers. Other pieces run
    between: pppd sends an update of accounting once a minute, not more often."""

    def __init__(self) -> None:
        self._servers = [FreeRadius(IPv4Address(f"127.0.0.{n}"), Path(f"/run/radius{n}")) for n in (1, 2)]
        self._sessions: dict[str, dict[str, Any]] = {}

    def radius_goes(self, world: World) -> dict[str, list[int]]:
        """End the first server, then the second."""
        soon("the servers", lambda: all(server.is_ready() for server in self._servers))
        world.commit({"radius": section_of(*self._servers, timeout=1, max_try=2)})
        for number, user in enumerate(("bob", "dave")):
            self._sign_on(world, user)
            self._servers[number].kill()
        return self._starts()

    def radius_is_away(self, world: World) -> dict[str, Any]:
        """Look at the sessions, then start the second server again."""
        soon("updates without a reply", lambda: all(map(_has_failed, self._sessions.values())))
        sessions = self._listed(world)
        self._servers[1].start()
        return sessions

    def radius_returns(self, world: World) -> dict[str, Any]:
        """Start the first server again, once the second has an update of one of its sessions."""
        first, second = self._servers
        soon("an update at the second server", lambda: second.accounted("Interim-Update", "bob"))
        sessions = self._listed(world)
        first.start()
        soon("the first server", first.is_ready)
        self._sign_on(world, "erin")
        return {"starts": self._starts(), **sessions}

    def _listed(self, world: World) -> dict[str, list[int]]:
        """Return the ids of the sessions when they began, and now."""
        before = {user: session["id"] for user, session in self._sessions.items()}
        return {"before": list(before.values()), "after": [world.sessions()[user]["id"] for user in before]}

    def _sign_on(self, world: World, user: str) -> None:
        # The client gives up a gateway that is silent for 15 s.
        echoes = ("lcp-echo-interval", "5", "lcp-echo-failure", "3")
        world.dial(RADIUS[user], user, RADIUS[user].inner, *echoes)
        self._sessions[user] = world.online(user)
        soon(f"the start of {user}", lambda: any(self._starts()[user]))

    def _starts(self) -> dict[str, list[int]]:
        """Return how many sessions of each user each server was told of."""
        return {user: [server.accounted("Start", user) for server in self._servers] for user in RADIUS}


def _has_failed(session: dict[str, Any]) -> bool:
    """Return True if an update of its accounting had no reply."""
    log = homes.run(f"journalctl --output=cat _PID={pppd_of(session)}")
    return f"Interim accounting failed for {session['username']}" in log


def fifty(world: World) -> dict[str, Any]:
    for unit, (user, line) in enumerate(HOMES.items(), 200):
        world.dial(line, user, unit)

    def all_online() -> Any:
        sessions = world.sessions()
        found = [sessions[user] for user in HOMES if user in sessions and sessions[user]["ip_address"]]
        return found if len(found) == len(HOMES) else None

    # The processor has enough to do.
    sessions = soon("fifty sessions", all_online, every=3)
    for session in sessions:
        world.event("session_up", session["id"])
    ups = [len(world.events("session_up", session["id"])) for session in sessions]
    return {"sessions": sessions, "ups": ups}


def attacked(world: World) -> dict[str, Any]:
    """Send all that a line can send and must not for a minute, while others ping."""
    world.commit({"demux.rate_limits": {"vlans_per_second": 2, "burst": 10, "max_vlans": 1000}})
    sessions = world.sessions()
    others = [world.dialers[user].device for user in OTHERS]
    lost_without = homes.lost(others, BEHIND_THE_APPLIANCE, LASTS)
    (core,) = processes("gateway_core", "linux")
    memory, passed = _memory(core), udp_at_the_appliance()
    running = attack.start(ATTACKER, HOMES[OTHERS[0]], sessions[OTHERS[0]]["ip_address"], LASTS)
    lost = homes.lost(others, BEHIND_THE_APPLIANCE, LASTS)
    return {
        "status": running.wait(),
        "lost": (lost_without, lost),
        "passed": udp_at_the_appliance() - passed,
        "mebibytes": (_memory(core) - memory) / 2**20,
        "before": sessions,
        "after": world.sessions(),
    }


def _memory(pid: int) -> int:
    """Return the bytes of a process (proc(5))."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize()


def all_hung_up(world: World) -> dict[str, Any]:
    sessions = world.sessions()
    for user in HOMES:
        world.dialers[user].hang_up()
    soon("the end of all", lambda: not HOMES.keys() & world.sessions().keys())
    return {user: world.end_of(sessions[user]) for user in HOMES}


def main() -> None:
    world, radius = World([ALICE, CAROL, ATTACKER, *RADIUS.values(), *HOMES.values()]), RadiusAway()
    world.dial(ALICE, "alice", 100)
    world.dial(CAROL, "carol", 102)
    pieces = [radius.radius_goes, both_modes, radius.radius_is_away, radius.radius_returns]
    run_pieces([*pieces, fifty, attacked, all_hung_up], world)
    world.close()


if __name__ == "__main__":
    main()
