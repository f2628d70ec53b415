"""The service of DHCP homes while a wrong range waits for its confirmation, and after its return."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.dhcp_site import Site, needs_a_kernel_of_its_own
from tests.support.linux_core import CoreProcess
from tests.support.namespaces import neighbour
from tests.support.stack import wait_for

HOMES = 3
FORMER, WRONG = "100.64.0.0/16", "100.80.0.0/16"

pytestmark = needs_a_kernel_of_its_own


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with neighbour() as access, neighbour() as outside:
        site = Site(tmp_path, access, outside, HOMES)
        site.document["cgnat"]["source_range"] = FORMER
        try:
            yield site
        finally:
            site.close()


def online(site: Site) -> list[str]:
    """The addresses of all homes, once each is reached from outside. They say nothing any more."""
    wait_for("all leases", lambda: len(site.clients.told()[0]) == HOMES)
    addresses = sorted(site.clients.told()[0].values())
    wait_for("connection of all", lambda: site.reached(addresses) == addresses)
    return addresses


def commit_wrong_range(core: CoreProcess, confirm_seconds: int) -> Any:
    edit = {"action": "set", "path": "cgnat.source_range", "value_json": json.dumps(WRONG)}
    core.call("EditCandidate", edits=[edit])
    return core.call("CommitCandidate", author="test", confirm_seconds=confirm_seconds)["impact"]


def source_range(core: CoreProcess) -> str:
    found: str = core.call("GetConfiguration")["configuration"]["cgnat"]["source_range"]
    return found


def test_homes_have_connection_all_the_time_until_the_former_range_returns_and_after_it(site: Site) -> None:
    with site.booted("b007000000000001") as core:
        addresses = online(site)
        sessions = core.sessions()
        impact = commit_wrong_range(core, confirm_seconds=10)
        reached = [site.reached(addresses)]
        while source_range(core) == WRONG:
            reached.append(site.reached(addresses))
        reached.append(site.reached(addresses))
        assert reached == [addresses] * len(reached)
        assert core.sessions().keys() == sessions.keys()
        assert (impact["sessions_dropped"], impact["sessions_held"]) == (HOMES, HOMES)


def test_a_core_that_restarts_before_the_return_takes_no_home_its_connection(site: Site) -> None:
    with site.booted("b007000000000001") as core:
        addresses = online(site)
        sessions = core.sessions()
        commit_wrong_range(core, confirm_seconds=3600)
        core.kill()
        core.start()
        wait_for("the source", lambda: set(core.states().values()) == {"active"})
        assert site.reached(addresses) == addresses
        assert source_range(core) == WRONG
        assert core.sessions().keys() == sessions.keys()
        assert core.call("ListCgnatSessions")["total"] == HOMES


def test_the_confirmation_ends_the_sessions_of_the_former_range(site: Site) -> None:
    with site.booted("b007000000000001") as core:
        addresses = online(site)
        commit_wrong_range(core, confirm_seconds=3600)
        assert site.reached(addresses) == addresses
        core.call("ConfirmCommit")
        wait_for("the ends of the sessions", lambda: not core.sessions())
        assert site.reached(addresses) == []
