"""DHCP clients that say nothing by themselves: a reboot of their gateway, commits that take their range."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.dhcp_site import Site, needs_a_kernel_of_its_own
from tests.support.linux_core import CoreProcess
from tests.support.namespaces import neighbour
from tests.support.stack import PATIENCE, wait_for

CLIENTS, HOMES = 50, 3
FORMER, WRONG = "100.64.0.0/16", "100.80.0.0/16"

pytestmark = needs_a_kernel_of_its_own


@contextmanager
def site_of(folder: Path, clients: int) -> Iterator[Site]:
    with neighbour() as access, neighbour() as outside:
        site = Site(folder, access, outside, clients)
        try:
            yield site
        finally:
            site.close()


def online(site: Site, clients: int) -> list[str]:
    """The addresses of all clients, once each is reached from outside. They say nothing any more."""
    wait_for("all leases", lambda: len(site.clients.told()[0]) == clients)
    addresses = sorted(site.clients.told()[0].values())
    wait_for("connection of all", lambda: site.reached(addresses) == addresses)
    return addresses


def places(sessions: dict[int, dict[str, Any]]) -> set[tuple[str, str, str]]:
    keys = ("mac_address", "access_interface", "ip_address")
    return {tuple(session[key] for key in keys) for session in sessions.values()}


def test_all_clients_have_connection_after_a_reboot_without_a_word_of_their_own(tmp_path: Path) -> None:
    with site_of(tmp_path, CLIENTS) as site:
        with site.booted("b007000000000001") as core:
            addresses = online(site, CLIENTS)
            wait_for("all sessions", lambda: len(core.sessions()) == CLIENTS)
            before = core.sessions()
        sent = site.clients.told()[1]
        with site.booted("b007000000000002") as core:
            missing, deadline = set(addresses), time.monotonic() + PATIENCE
            while missing and time.monotonic() < deadline:
                missing.difference_update(site.reached(sorted(missing)))
            assert missing == set()
            after, events = core.sessions(), core.events()
        assert site.clients.told()[1] == sent
        # The VLANs are back before the DHCP server starts.
        assert site.vlans_at_the_start_of_dhcp() == CLIENTS
    # Each session ends once with the reboot, and is followed by another.
    assert {event["reason"] for event in events[:CLIENTS]} == {"nas_reboot"}
    assert [(event["event"], event["id"]) for event in events] == [
        *(("session.down", id) for id in before),
        *(("session.up", id) for id in after),
    ]
    assert before.keys().isdisjoint(after)
    assert places(after) == places(before)


def commit_wrong_range(core: CoreProcess, confirm_seconds: int) -> Any:
    edit = {"action": "set", "path": "cgnat.source_range", "value_json": json.dumps(WRONG)}
    core.call("EditCandidate", edits=[edit])
    return core.call("CommitCandidate", author="test", confirm_seconds=confirm_seconds)["impact"]


def source_range(core: CoreProcess) -> str:
    found: str = core.call("GetConfiguration")["configuration"]["cgnat"]["source_range"]
    return found


def test_homes_have_connection_while_a_wrong_range_waits_and_none_of_it_once_it_is_confirmed(
    tmp_path: Path,
) -> None:
    with site_of(tmp_path, HOMES) as site:
        site.document["cgnat"]["source_range"] = FORMER
        with site.booted("b007000000000001") as core:
            addresses = online(site, HOMES)
            sessions = core.sessions()
            impact = commit_wrong_range(core, confirm_seconds=10)
            assert (impact["sessions_dropped"], impact["sessions_held"]) == (HOMES, HOMES)
            reached = [site.reached(addresses)]
            while source_range(core) == WRONG:
                reached.append(site.reached(addresses))
            # Also after the automatic return.
            reached.append(site.reached(addresses))
            assert reached == [addresses] * len(reached)
            assert core.sessions().keys() == sessions.keys()
            # A core that restarts before the return takes no home its connection.
            commit_wrong_range(core, confirm_seconds=3600)
            core.kill()
            core.start()
            wait_for("the source", lambda: set(core.states().values()) == {"active"})
            assert site.reached(addresses) == addresses
            assert source_range(core) == WRONG
            assert core.sessions().keys() == sessions.keys()
            assert core.call("ListCgnatSessions")["total"] == HOMES
            core.call("ConfirmCommit")
            wait_for("the ends of the sessions", lambda: not core.sessions())
            assert site.reached(addresses) == []
