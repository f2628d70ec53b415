"""Many subscribers of the whole gateway on Debian's kernel, and what takes minutes. One boot serves all."""

import pytest

from tests.support.inside.gateway_long import HOMES
from tests.support.inside.installed import prepare
from tests.support.virtual_machine import Report, run_in_machine

# The machine is emulated.
pytestmark = pytest.mark.timeout(6000)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """What the pieces of the program saw, after the machine ended."""
    shared = tmp_path_factory.mktemp("shared")
    prepare(shared)
    return run_in_machine("tests.support.inside.gateway_long", shared, timeout=5400)


@pytest.mark.parametrize("direction", ["down", "up"])
def test_a_session_in_the_kernel_is_faster(report: Report, direction: str) -> None:
    seen = report.of("both_modes")
    assert seen["alice"][direction] > 1.5 * seen["carol"][direction], seen


@pytest.mark.parametrize("piece", ["radius_is_away", "radius_returns"])
def test_no_session_ends_while_no_radius_server_replies(report: Report, piece: str) -> None:
    seen = report.of(piece)
    assert seen["before"] == seen["after"]


def test_a_subscriber_signs_on_by_the_second_radius_server_and_again_by_the_first(report: Report) -> None:
    assert report.of("radius_goes") == {"bob": [1, 0], "dave": [0, 1], "erin": [0, 0]}
    assert report.of("radius_returns")["starts"]["erin"] == [1, 0]


def test_fifty_subscribers_sign_on_at_once(report: Report) -> None:
    seen = report.of("fifty")
    lines = {user: line.access_interface for user, line in HOMES.items()}
    assert {each["username"]: each["access_interface"] for each in seen["sessions"]} == lines
    for field in ("id", "ip_address", "mac_address", "interface"):
        assert len({each[field] for each in seen["sessions"]}) == len(HOMES)
    assert set(seen["ups"]) == {1}


def test_an_attack_from_a_line_costs_little_memory_no_session_and_no_packet_of_the_others(
    report: Report,
) -> None:
    seen = report.of("attacked")
    assert (seen["status"], seen["passed"]) == (0, 0)
    assert seen["mebibytes"] < 64
    without, during = seen["lost"]
    assert during <= without
    assert seen["after"] == seen["before"]


def test_the_end_of_many_is_one_event_each(report: Report) -> None:
    ends = report.of("all_hung_up")
    assert {end["downs"] for end in ends.values()} == {1}
    # On a busy machine, the journal takes longer than the core waits for it.
    assert {end["event"]["reason"] for end in ends.values()} <= {"user_request", "unknown"}
