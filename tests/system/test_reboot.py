"""A reboot of a gateway with 200 DHCP clients, which say nothing meanwhile."""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.support.dhcp_site import Site, needs_a_kernel_of_its_own
from tests.support.namespaces import neighbour
from tests.support.stack import wait_for

CLIENTS = 200
#: Seconds from the start of the core after a reboot in which all clients must have connection.
OUTAGE = 30.0

pytestmark = needs_a_kernel_of_its_own


class Rebooted(NamedTuple):
    """What was seen. Sessions are by id; `missing` are the clients without connection at the end."""

    before: dict[int, dict[str, Any]]
    after: dict[int, dict[str, Any]]
    missing: set[str]
    seconds: float
    sent: int
    vlans_at_the_start_of_dhcp: int
    events: list[dict[str, Any]]


@pytest.fixture(scope="module")
def rebooted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rebooted]:
    with neighbour() as access, neighbour() as outside:
        site = Site(tmp_path_factory.mktemp("reboot"), access, outside, CLIENTS)
        try:
            with site.booted("b007000000000001") as core:
                wait_for("all leases", lambda: len(site.clients.told()[0]) == CLIENTS)
                addresses = sorted(site.clients.told()[0].values())
                wait_for("all sessions", lambda: len(core.sessions()) == CLIENTS)
                wait_for("connection of all", lambda: site.reached(addresses) == addresses)
                before = core.sessions()
            sent, began = site.clients.told()[1], time.monotonic()
            with site.booted("b007000000000002") as core:
                missing = set(addresses)
                while missing and time.monotonic() - began < OUTAGE:
                    missing.difference_update(site.reached(sorted(missing)))
                seconds = time.monotonic() - began
                yield Rebooted(
                    before,
                    core.sessions(),
                    missing,
                    seconds,
                    site.clients.told()[1] - sent,
                    site.vlans_at_the_start_of_dhcp(),
                    core.events(),
                )
        finally:
            site.close()


def test_no_client_is_without_connection_soon_after_a_reboot(rebooted: Rebooted) -> None:
    print(f"{CLIENTS - len(rebooted.missing)} of {CLIENTS} have connection after {rebooted.seconds:.1f} s")
    assert (len(rebooted.missing), rebooted.sent) == (0, 0)


def test_the_vlans_are_back_before_the_dhcp_server_starts(rebooted: Rebooted) -> None:
    assert rebooted.vlans_at_the_start_of_dhcp == CLIENTS


def test_each_session_ends_once_with_the_reboot_and_is_followed_by_another(rebooted: Rebooted) -> None:
    events = [(event["event"], event["id"]) for event in rebooted.events]
    ends = rebooted.events[:CLIENTS]
    assert {event["reason"] for event in ends} == {"nas_reboot"}
    assert events[:CLIENTS] == [("session.down", id) for id in rebooted.before]
    assert events[CLIENTS:] == [("session.up", id) for id in rebooted.after]
    assert rebooted.before.keys().isdisjoint(rebooted.after)
    assert places(rebooted.after) == places(rebooted.before)


def places(sessions: dict[int, dict[str, Any]]) -> set[tuple[str, str, str]]:
    keys = ("mac_address", "access_interface", "ip_address")
    return {tuple(session[key] for key in keys) for session in sessions.values()}
