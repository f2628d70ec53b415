"""A rollout over 20 gateways, of which one fails at each possible step, or whose command is killed at each
step and resumed: in the end every gateway has the former or the new configuration."""

import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.fleet import LABEL, Fleet, Outcome, Passing, Site, read_outcome, running_fleet
from tests.support.shell import Running
from tests.support.stack import wait_for

GATEWAYS = 20
#: One of the second wave: gw01 is the canary, and gw02 to gw11 are the next wave.
FAULTY = "gw07"
CONFIRM_SECONDS = 12
EDIT, COMMIT, CONFIRM, DISCARD = (
    f"POST /system/config/{name}" for name in ("edit", "commit", "confirm", "discard")
)
HEALTH = "GET /system/health"
#: Succeeds unless there is a file for the gateway; notes that it runs.
PROBE = (
    'touch "ran-$GATEWAY_NAME"; sleep 0.5; '
    'test ! -e "hangs-$GATEWAY_NAME" || sleep 1000; test ! -e "bad-$GATEWAY_NAME"'
)

_ROW = "| {:<8} | {:<62} | {:>6} | {:>3} | {:>7} | {:>7} |"


class Case(NamedTuple):
    """A fault of one gateway. `cause` is called with the gateway at a moment of its rollout, the `number`th
    of its kind, and returns True if the proxy must lose the request or response. `expected` is the number of
    gateways with the new configuration in the end; None if all or one may have it."""

    step: str
    event: str
    moment: str
    number: int
    cause: Callable[[Site], bool]
    expected: int | None
    clean_up: Callable[[Site], None] = lambda _: None


def lose(site: Site) -> bool:
    return True


def cut(site: Site) -> bool:
    site.is_cut = True
    return True


def join(site: Site) -> None:
    site.is_cut = False


def stage(site: Site) -> bool:
    site.edit("qos.default_up", "33mbit")
    return False


def commit_other(site: Site) -> bool:
    """Commit another change, as another user does."""
    value = "31mbit" if site.api.get("/system/config")["qos"]["default_up"] != "31mbit" else "32mbit"
    site.edit("qos.default_up", value)
    assert site.api.send("POST", "/system/config/commit").status_code == 200
    return False


def break_disk(site: Site) -> bool:
    revisions = site.gateway.state / "configuration" / "revisions"
    revisions.rename(revisions.with_name("broken"))
    return False


def repair_disk(site: Site) -> None:
    revisions = site.gateway.state / "configuration" / "revisions"
    revisions.with_name("broken").rename(revisions)


def lose_audit(site: Site) -> bool:
    """Make the disk of the audit log fail, as the health of the gateway shows."""
    audit = site.gateway.state / "audit"
    audit.rename(audit.with_name("no-audit"))
    return False


def find_audit(site: Site) -> None:
    audit = site.gateway.state / "audit"
    shutil.rmtree(audit, ignore_errors=True)
    audit.with_name("no-audit").rename(audit)


def kill_core(site: Site) -> bool:
    site.kill_core()
    return True


def kill_api(site: Site) -> bool:
    site.kill_api()
    return True


def fail_probe(site: Site) -> bool:
    (HOME / f"bad-{site.name}").touch()
    return False


def hang_probe(site: Site) -> bool:
    (HOME / f"hangs-{site.name}").touch()
    return False


def release_probe(site: Site) -> None:
    (HOME / f"hangs-{site.name}").unlink()


def pass_probe(site: Site) -> None:
    (HOME / f"bad-{site.name}").unlink()


#: Folder in which `gatewayctl` and the probe run.
HOME = Path()

CASES = [
    Case("plan", "another user has staged a change", "before GET /system/config/compare", 1, stage, 0,
         Site.discard),
    Case("plan", "the connection is cut", "before GET /system/config/compare", 1, cut, 0, join),
    Case("plan", "the response to the edit is lost", f"after {EDIT}", 1, lose, 0),
    Case("plan", "the core is killed after the edit", f"after {EDIT}", 1, kill_core, 0),
    Case("edit", "another user has staged a change since the plan", f"before {EDIT}", 2, stage, 1,
         Site.discard),
    Case("edit", "another user has committed a change since the plan", f"before {EDIT}", 2, commit_other, 1),
    Case("edit", "the response is lost", f"after {EDIT}", 2, lose, 1),
    Case("commit", "refused: the disk of the core has failed", f"before {COMMIT}", 1, break_disk, 1,
         repair_disk),
    Case("commit", "the request is lost", f"before {COMMIT}", 1, lose, 1),
    Case("commit", "the response is lost", f"after {COMMIT}", 1, lose, None),
    Case("commit", "the connection is cut before the commit", f"before {COMMIT}", 1, cut, 1, join),
    Case("commit", "the connection is cut after the commit", f"after {COMMIT}", 1, cut, 1, join),
    Case("commit", "the core is killed before the commit", f"before {COMMIT}", 1, kill_core, None),
    Case("commit", "the core is killed after the commit", f"after {COMMIT}", 1, kill_core, None),
    Case("commit", "the API is killed after the commit", f"after {COMMIT}", 1, kill_api, None),
    Case("check", "the health is worse after the commit", f"after {COMMIT}", 1, lose_audit, 1, find_audit),
    Case("check", "the probe fails", f"after {COMMIT}", 1, fail_probe, 1, pass_probe),
    Case("check", "the probe hangs", f"after {COMMIT}", 1, hang_probe, 1, release_probe),
    Case("confirm", "the request is lost", f"before {CONFIRM}", 1, lose, None),
    Case("confirm", "the response is lost", f"after {CONFIRM}", 1, lose, 20),
    Case("confirm", "the connection is cut before the confirmation", f"before {CONFIRM}", 1, cut, 10, join),
    Case("confirm", "the connection is cut after the confirmation", f"after {CONFIRM}", 1, cut, 11, join),
    Case("confirm", "the core is killed before the confirmation", f"before {CONFIRM}", 1, kill_core, None),
    Case("confirm", "the core is killed after the confirmation", f"after {CONFIRM}", 1, kill_core, None),
]  # fmt: skip

#: Moments of a kill of the command: step, moment and its number.
KILLS = [
    ("plan", f"before {EDIT}", 1),
    ("plan", f"after {EDIT}", 1),
    ("plan", f"after {DISCARD}", 1),
    ("edit", f"before {EDIT}", 2),
    ("edit", f"after {EDIT}", 2),
    ("commit", f"before {COMMIT}", 1),
    ("commit", f"after {COMMIT}", 1),
    ("check", f"before {HEALTH}", 2),
    ("confirm", f"before {CONFIRM}", 1),
    ("confirm", f"after {CONFIRM}", 1),
]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    global HOME
    # Subscribers come and go at one gateway, so that more sessions may end than the plan announces.
    with running_fleet(tmp_path_factory.mktemp("fleet"), GATEWAYS, **{FAULTY: "ARRIVALS=8"}) as running:
        HOME = running.shell.folder
        print()
        print(_ROW.format("step", "event", "former", "new", "waiting", "seconds"))
        print(_ROW.format("---", "---", "---:", "---:", "---:", "---:"))
        yield running


class Attempt:
    """A rollout of a new value over the fleet."""

    number = 0

    def __init__(self, fleet: Fleet, patch: dict[str, object] | None = None) -> None:
        Attempt.number += 1
        self.fleet = fleet
        self.former = {site.name: site.value for site in fleet.sites}
        self.new = f"{200 + Attempt.number}mbit"
        self.state = f"state-{Attempt.number}.json"
        self._began = time.monotonic()
        document = {"qos": {"default_down": self.new}, **(patch or {})}
        self._file = fleet.shell.write(f"patch-{Attempt.number}.json", json.dumps(document))

    def start_clock(self) -> None:
        self._began = time.monotonic()

    @contextmanager
    def started(self) -> Iterator[Running]:
        with self.fleet.shell.started(
            "rollout", self._file, "--on", LABEL, "--yes", "--confirm-within", str(CONFIRM_SECONDS),
            "--probe", PROBE, "--state", self.state,
        ) as running:  # fmt: skip
            yield running

    def resume(self) -> tuple[int, str]:
        """Resume the rollout, and return the exit status and the output."""
        with self.fleet.shell.started("rollout", "--resume", self.state, "--yes") as running:
            return running.wait(), running.out + running.err

    @property
    def can_resume(self) -> bool:
        return (self.fleet.shell.folder / self.state).exists()

    def settle(self, step: str, event: str, *, is_killed: bool = False) -> Outcome:
        """Wait until no commit waits for its confirmation, and print the row of the table. A killed command
        may leave its change in candidates until the rollout is resumed."""

        def read() -> Outcome | None:
            outcome = read_outcome(self.fleet, self.former, self.new)
            return None if outcome.waiting else outcome

        outcome: Outcome = wait_for("the return of all gateways", read)
        seconds = time.monotonic() - self._began
        print(_ROW.format(step, event, outcome.former, outcome.new, outcome.waiting, f"{seconds:.0f}"))
        assert outcome.strays == []
        assert is_killed or outcome.staged == []
        return outcome


def count_moments(fleet: Fleet, moment: str, number: int, act: Callable[[Site], bool]) -> None:
    """Call `act` at the moment of the given number at the faulty gateway."""
    seen = 0

    def hook(passing: Passing) -> bool:
        nonlocal seen
        if not passing.is_(FAULTY, moment):
            return False
        seen += 1
        return act(passing.site) if seen == number else False

    fleet.set_hook(hook)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.step}: {case.event}")
def test_a_failure_of_one_gateway_leaves_every_gateway_on_one_of_two_configurations(
    fleet: Fleet, case: Case
) -> None:
    attempt = Attempt(fleet)

    def act(site: Site) -> bool:
        attempt.start_clock()
        return case.cause(site)

    count_moments(fleet, case.moment, case.number, act)
    with attempt.started() as running:
        status = running.wait()
    case.clean_up(fleet[FAULTY])
    fleet.set_hook(lambda _: False)
    if attempt.can_resume:
        # A gateway that could not be reached.
        attempt.resume()
    outcome = attempt.settle(case.step, case.event)
    assert outcome.new in ((1, GATEWAYS) if case.expected is None else (case.expected,)), running.err
    assert (status == 0) == (outcome.new == GATEWAYS), running.err
    assert not attempt.can_resume


@pytest.mark.timeout(600)
def test_a_commit_that_would_end_more_sessions_than_planned_stops_the_rollout(fleet: Fleet) -> None:
    before = fleet.sites[0].api.get("/system/config")["demux"]["trunks"]
    attempt, planned = Attempt(fleet, {"demux": {"trunks": ["trunk0"]}}), list[int]()

    def hook(passing: Passing) -> bool:
        site = passing.site
        if passing.is_(FAULTY, f"before {EDIT}") and not planned:
            for session in list_on_trunk1(site):
                site.api.send("DELETE", f"/subscribers/{session['id']}")
        elif passing.is_(FAULTY, f"before {DISCARD}") and not planned:
            planned.append(site.difference["impact"]["sessions_dropped"])
        elif passing.is_(FAULTY, f"before {COMMIT}"):
            wait_for("more sessions", lambda: len(list_on_trunk1(site)) > planned[0] + 2)
            attempt.start_clock()
        return False

    fleet.set_hook(hook)
    with attempt.started() as running:
        status = running.wait()
    fleet.set_hook(lambda _: False)
    outcome = attempt.settle("commit", "refused: more sessions would end than planned")
    assert (status, outcome.new) == (10 + GATEWAYS - 1, 1), running.err
    canary = fleet.sites[0]
    canary.edit("demux.trunks", before)
    assert canary.api.send("POST", "/system/config/commit").status_code == 200


def list_on_trunk1(site: Site) -> list[dict[str, Any]]:
    sessions = site.api.get("/subscribers")["sessions"]
    return [each for each in sessions if each["access_interface"].startswith("trunk1.")]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("step", "moment", "occurrence", "number", "waits"),
    [
        *((*kill, number, False) for kill in KILLS for number in (signal.SIGKILL, signal.SIGINT)),
        *((*kill, signal.SIGKILL, True) for kill in KILLS[-4:]),
    ],
)
def test_a_killed_rollout_can_be_resumed(
    fleet: Fleet, step: str, moment: str, occurrence: int, number: int, waits: bool
) -> None:
    attempt, started = Attempt(fleet), list[Running]()

    def act(site: Site) -> bool:
        attempt.start_clock()
        started[0].send_signal(number)
        return number == signal.SIGKILL

    count_moments(fleet, moment, occurrence, act)
    with attempt.started() as running:
        started.append(running)
        status = running.wait()
    assert status in (-signal.SIGKILL, 130), running.err
    fleet.set_hook(lambda _: False)
    event = f"{'kill -9' if number == signal.SIGKILL else 'Ctrl-C'} {moment.replace('/system/config/', '')}"
    if waits:
        outcome = attempt.settle(step, f"{event}, not resumed", is_killed=True)
        assert 1 <= outcome.new <= 1 + 10
        event += ", resumed after the deadline"
    elif attempt.can_resume:
        event += ", resumed"
    expected = 0
    if attempt.can_resume:
        status, said = attempt.resume()
        assert status == 0, said
        expected = GATEWAYS
    else:
        # Ctrl-C during the plan leaves nothing to resume.
        assert (step, status) == ("plan", 130)
    assert attempt.settle(step, event).new == expected


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["kill -9", "Ctrl-C"])
def test_a_rollout_killed_while_gateways_return_stays_stopped(fleet: Fleet, number: int) -> None:
    fail_probe(fleet[FAULTY])
    attempt = Attempt(fleet)
    with attempt.started() as running:
        running.wait_for("the probe failed")
        attempt.start_clock()
        time.sleep(1)
        running.send_signal(number)
        assert running.wait() in (-signal.SIGKILL, 130)
    pass_probe(fleet[FAULTY])
    status, said = attempt.resume()
    assert status == 10 + GATEWAYS - 1, said
    name = "kill -9" if number == signal.SIGKILL else "Ctrl-C"
    assert attempt.settle("return", f"{name} after the probe failed, resumed").new == 1


@pytest.mark.timeout(600)
def test_a_rollout_reaches_all_gateways(fleet: Fleet) -> None:
    attempt = Attempt(fleet)
    with attempt.started() as running:
        assert running.wait() == 0, running.err
    assert attempt.settle("-", "no failure").new == GATEWAYS
    assert len(list(HOME.glob("ran-*"))) == GATEWAYS
