"""Rollouts over three gateways: waves, failures, and a command that is killed. The long tests have all
steps, on 20 gateways."""

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.fleet import LABEL, Fleet, Passing, read_outcome, running_fleet
from tests.support.shell import GATEWAYCTL, Ended, Running

USAGE = 2
COMMIT, CONFIRM = "POST /system/config/commit", "POST /system/config/confirm"
DISCARD = "POST /system/config/discard"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with running_fleet(tmp_path_factory.mktemp("fleet"), 3) as running:
        yield running


@pytest.fixture(autouse=True)
def _no_faults(fleet: Fleet) -> Iterator[None]:
    yield
    fleet.set_hook(lambda _: False)


def roll_out(fleet: Fleet, value: str, *options: str) -> Ended:
    return fleet.shell.run(*_words(fleet, value, *options))


def _words(fleet: Fleet, value: str, *options: str) -> tuple[str, ...]:
    file = fleet.shell.write("patch.json", json.dumps({"qos": {"default_down": value}}))
    return "rollout", file, "--on", LABEL, "--yes", "--confirm-within", "10", *options


def results(ended: Ended) -> dict[str, str]:
    """Return the results by the names of the gateways."""
    return {each["context"]: each["result"] for each in json.loads(ended.out)}


def values(fleet: Fleet) -> list[str]:
    return [site.value for site in fleet.sites]


def state_files(fleet: Fleet) -> list[str]:
    return [path.name for path in fleet.shell.folder.glob("rollout-*")]


def test_the_canary_comes_first_and_gateways_with_the_configuration_are_left_out(fleet: Fleet) -> None:
    commits: list[str] = []
    gw02 = fleet["gw02"]
    gw02.edit("qos.default_down", "41mbit")
    gw02.api.send("POST", "/system/config/commit")

    def note(passing: Passing) -> bool:
        if not passing.is_response and f"{passing.method} {passing.path}" in (COMMIT, CONFIRM):
            commits.append(f"{passing.site.name} {passing.path.rpartition('/')[2]}")
        return False

    fleet.set_hook(note)
    probe = f'test "$GATEWAY_URL" && {GATEWAYCTL} health'
    ended = roll_out(fleet, "41mbit", "-o", "json", "--probe", probe)
    assert ended.status == 0, ended
    assert results(ended) == {"gw01": "confirmed", "gw02": "had it already", "gw03": "confirmed"}
    assert commits == ["gw01 commit", "gw01 confirm", "gw03 commit", "gw03 confirm"]
    assert values(fleet) == ["41mbit"] * 3
    assert state_files(fleet) == []
    archive = fleet["gw03"].api.get("/system/config/archive")
    assert archive["running"]["comment"].endswith(" of patch.json")


def test_a_plan_changes_nothing(fleet: Fleet) -> None:
    before = values(fleet)
    ended = roll_out(fleet, "42mbit", "--dry-run")
    assert ended.status == 0
    assert '+ qos.default_down = "42mbit"' in ended.out
    assert "0 sessions would end" in ended.out
    ended = roll_out(fleet, "42mbit", "--dry-run", "--canary", "0", "--wave", "2", "-o", "json")
    assert [each["wave"] for each in json.loads(ended.out)] == ["1", "1", "2"]
    file = str(fleet.shell.folder / "patch.json")
    ended = fleet.shell.run("rollout", file, "--all")
    assert (ended.status, ended.err.splitlines()[-1]) == (
        USAGE,
        "gatewayctl: no terminal for the confirmation: use --yes",
    )
    former = dict(zip(("gw01", "gw02", "gw03"), before, strict=True))
    assert read_outcome(fleet, former, "42mbit") == (3, 0, 0, [], [])
    assert state_files(fleet) == []


@pytest.mark.parametrize(
    ("patch", "error"),
    [
        (
            {"qos": {"default_up": "9mbit", "default_down": "1"}},
            "qos.default_down: must be at least 8 kbit/s",
        ),
        ({"subscribers": {"dns_servers": ["x"]}}, "subscribers.dns_servers: must be an IPv4 address"),
        ({"nothing": {"here": 1}}, "nothing.here: is not a known path"),
        ({"demux": {"trunks": ["trunk9"]}}, "the changed configuration would not be valid"),
    ],
)
def test_a_change_that_is_not_valid_is_refused_by_the_plan(fleet: Fleet, patch: Any, error: str) -> None:
    file = fleet.shell.write("patch.json", json.dumps(patch))
    ended = fleet.shell.run("rollout", file, "--on", LABEL, "--yes")
    assert ended.status == 13
    assert f"gatewayctl: gw02: {error}" in ended.err
    assert [site.difference["diff"] for site in fleet.sites] == [""] * 3
    assert state_files(fleet) == []


def test_a_rollout_without_agreement_changes_nothing(fleet: Fleet) -> None:
    before = values(fleet)
    file = fleet.shell.write("patch.json", '{"qos": {"default_down": "45mbit"}}')
    terminal = fleet.shell.at_terminal("rollout", file, "--on", LABEL)
    terminal.expect("Roll this out? [y/N] ")
    terminal.type("n\n")
    assert terminal.end() == 1
    assert "gatewayctl: nothing was changed" in terminal.shown
    assert values(fleet) == before
    assert state_files(fleet) == []


def test_a_gateway_with_changes_of_another_user_fails_the_plan(fleet: Fleet) -> None:
    before, other = values(fleet), fleet["gw02"]
    other.edit("qos.default_up", "9mbit")
    ended = roll_out(fleet, "43mbit")
    assert ended.status == 11
    assert "gatewayctl: gw02: the candidate has changes of another user" in ended.err
    assert "gatewayctl: the plan failed: no running configuration was changed" in ended.err
    assert values(fleet) == before
    assert "43mbit" not in other.difference["diff"]
    assert "9mbit" in other.difference["diff"]
    other.discard()


@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_plan_that_leaves_a_change_in_a_candidate_says_how_to_discard_it(
    fleet: Fleet, is_interrupted: bool
) -> None:
    before, started = values(fleet), list[Running]()

    def lose_discard(passing: Passing) -> bool:
        if not passing.is_("gw02", f"before {DISCARD}"):
            return False
        if is_interrupted:
            started.pop().send_signal(signal.SIGINT)
        return True

    fleet.set_hook(lose_discard)
    with fleet.shell.started(*_words(fleet, "46mbit", "--state", "state.json")) as running:
        started.append(running)
        assert running.wait() == (130 if is_interrupted else 11), running.err
    remedy = "gatewayctl: not all gateways are settled; resume with: gatewayctl rollout --resume state.json"
    assert remedy in running.err.splitlines()
    assert "46mbit" in fleet["gw02"].difference["diff"]
    fleet.set_hook(lambda _: False)
    ended = fleet.shell.run("rollout", "--resume", "state.json")
    assert ended.status == USAGE
    assert "gatewayctl: no terminal for the confirmation: use --yes" in ended.err
    assert fleet["gw02"].difference["diff"] == ""
    assert values(fleet) == before
    assert not (fleet.shell.folder / "state.json").exists()


def test_a_failed_probe_stops_the_rollout_and_the_wave_returns(fleet: Fleet) -> None:
    former = {site.name: site.value for site in fleet.sites}
    probe = 'echo "no route to $GATEWAY_NAME"; test "$GATEWAY_NAME" != gw03'
    ended = roll_out(fleet, "44mbit", "--probe", probe, "-o", "json")
    assert ended.status == 12
    assert results(ended) == {"gw01": "confirmed", "gw02": "returned", "gw03": "returned"}
    assert "gw03: the probe failed with the status 1\ngatewayctl: gw03: no route to gw03" in ended.err
    assert read_outcome(fleet, former, "44mbit") == (2, 1, 0, [], [])
    assert state_files(fleet) == []


def test_a_change_of_another_user_stops_a_resumed_rollout_before_it_commits_the_change(fleet: Fleet) -> None:
    former, other = {site.name: site.value for site in fleet.sites}, fleet["gw02"]
    started, has_staged = list[Running](), list[bool]()

    def kill(passing: Passing) -> bool:
        if passing.is_("gw02", f"after {COMMIT}"):
            started.pop().send_signal(signal.SIGKILL)
            return True
        return False

    def stage(passing: Passing) -> bool:
        if passing.is_("gw02", f"before {COMMIT}") and not has_staged:
            has_staged.append(True)
            other.edit("qos.default_up", "9mbit")
        return False

    fleet.set_hook(kill)
    with fleet.shell.started(*_words(fleet, "47mbit", "--state", "state.json")) as running:
        started.append(running)
        running.wait()
    fleet.set_hook(stage)
    ended = fleet.shell.run("rollout", "--resume", "state.json", "-o", "json")
    assert has_staged
    assert ended.status == 12, ended
    assert results(ended) == {"gw01": "confirmed", "gw02": "returned", "gw03": "returned"}
    # The candidate of the other user is left alone.
    assert read_outcome(fleet, former, "47mbit") == (2, 1, 0, ["gw02"], [])
    assert "9mbit" in other.difference["diff"]
    other.discard()
    assert not (fleet.shell.folder / "state.json").exists()


def test_a_probe_that_cannot_be_run_stops_the_rollout(fleet: Fleet) -> None:
    former = {site.name: site.value for site in fleet.sites}
    members = [{"name": site.name, "url": site.url} for site in fleet.sites]
    state = {
        "comment": "a long probe", "patch": {"qos": {"default_down": "48mbit"}}, "members": members,
        "canary": 0, "wave": 3, "confirm_seconds": 10, "probe": f"true {'x' * 200_000}",
    }  # fmt: skip
    fleet.shell.write("state.json", json.dumps(state))
    ended = fleet.shell.run("rollout", "--resume", "state.json", "--yes", "-o", "json")
    assert ended.status == 13, ended
    assert ": cannot run the probe: Argument list too long\n" in ended.err
    assert set(results(ended).values()) == {"returned"}
    assert read_outcome(fleet, former, "48mbit") == (3, 0, 0, [], [])


@pytest.mark.parametrize(
    ("moment", "number"),
    [(f"after {COMMIT}", signal.SIGKILL), (f"before {CONFIRM}", signal.SIGINT)],
)
def test_a_killed_rollout_is_resumed(fleet: Fleet, moment: str, number: int) -> None:
    value = f"{50 + number}mbit"
    started = list[Running]()

    def kill(passing: Passing) -> bool:
        if started and passing.is_("gw02", moment):
            started.pop().send_signal(number)
            return True
        return False

    fleet.set_hook(kill)
    with fleet.shell.started(*_words(fleet, value, "--state", "state.json")) as running:
        started.append(running)
        status = running.wait()
        assert status in (-signal.SIGKILL, 130), running.err
        for text in ("stopped: the requests under way end first", "resume with: "):
            assert (text in running.err) == (status == 130)
    ended = fleet.shell.run("rollout", "--resume", "state.json", "-o", "json")
    assert ended.status == 0, ended
    assert values(fleet) == [value] * 3
    assert not (fleet.shell.folder / "state.json").exists()


def test_the_drift_of_each_gateway_is_shown(fleet: Fleet) -> None:
    before = fleet.sites[0].value
    file = fleet.shell.write("all.json", json.dumps({"qos": {"default_down": before}, "radius": {}}))
    feed = (fleet.shell.folder / "all.json").read_text()
    assert fleet.shell.run("drift", "--against", "-", "--on", LABEL, feed=feed).status == 0
    site = fleet["gw02"]
    site.edit("qos.default_down", "99mbit")
    site.api.send("POST", "/system/config/commit")
    ended = fleet.shell.run("drift", "--against", file, "--on", LABEL, "-o", "json")
    assert ended.status == 11
    expected: list[dict[str, Any]] = [
        {
            "context": "gw02",
            "path": "qos.default_down",
            "expected": before,
            "actual": "99mbit",
            "result": "differs",
        }
    ]
    assert json.loads(ended.out) == expected


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("rollout", "patch.json"), "--on or --all is required."),
        (("rollout",), "One of FILE, --resume is required."),
        (
            ("rollout", "--resume", "x", "--probe", "true"),
            "--probe does not go with --resume: it is for FILE.",
        ),
        (("rollout", "--resume", "none.json"), "cannot read the state file none.json: No such file"),
        (("rollout", "--resume", "patch.json"), "patch.json is not the state file of a rollout"),
        (("rollout", "none.json", "--all"), "cannot read the configuration from none.json"),
        (("rollout", "patch.json", "--all", "--confirm-within", "9"), "must be at least 10 s"),
        (("rollout", "patch.json", "--all", "--wave", "101"), "101 is not in the range 1<=x<=100"),
        (("rollout", "patch.json", "--all", "--canary", "101"), "101 is not in the range 0<=x<=100"),
        (("drift", "--against", "name.json", "--all"), '"": must be segments joined by dots'),
        (("rollout", "patch.json", "--all", "--state", "patch.json"), "patch.json exists"),
        (("rollout", "mask.json", "--all"), "radius.secret: must be a value, not the mask"),
        (("rollout", "list.json", "--all"), "the configuration must be an object of JSON"),
    ],
)
def test_a_wrong_command_line_changes_nothing(fleet: Fleet, words: tuple[str, ...], error: str) -> None:
    fleet.shell.write("patch.json", '{"qos": {"default_down": "1mbit"}}')
    fleet.shell.write("mask.json", '{"radius": {"secret": "********"}}')
    fleet.shell.write("list.json", "[]")
    fleet.shell.write("name.json", '{"": 1}')
    before = values(fleet)
    ended = fleet.shell.run(*words)
    assert ended.status == USAGE
    assert error in ended.err
    assert values(fleet) == before
