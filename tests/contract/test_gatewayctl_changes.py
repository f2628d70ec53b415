"""`gatewayctl` changes a gateway: sessions, rates, the configuration, webhooks and users."""

import csv
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from gateway_api.base.texts import rate_text
from tests.support.by_api import a_vlan, commit, rates, sessions, set_value, staged, with_a_name
from tests.support.receivers import Receiver, answer
from tests.support.running_gateway import Gateway, Reply
from tests.support.shell import Shell
from tests.support.stack import wait_for

pytestmark = pytest.mark.slow

FAILED, USAGE, AWAY, DENIED = 1, 2, 3, 4

SIGNING_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HASH = "$2b$04$l6cHqOx.6njlYvAogLLyBucPkVMnGY95sbhMuf9sMa4d1mAUkSSVW"


# subscribers disconnect


def test_a_dry_run_disconnects_nobody(admin: Shell) -> None:
    vlan = a_vlan(admin.api)
    there = sessions(admin.api, interface=vlan)
    shown = admin.done("subscribers", "disconnect", "--interface", vlan, "--dry-run")
    assert all(one["username"] in shown for one in there)
    assert f"would be disconnected on {vlan}" in shown
    assert sessions(admin.api, interface=vlan) == there


def test_the_answer_no_disconnects_nobody(admin: Shell) -> None:
    vlan = a_vlan(admin.api)
    there = sessions(admin.api, interface=vlan)
    terminal = admin.at_terminal("subscribers", "disconnect", "--interface", vlan)
    terminal.expect("Disconnect them? [y/N] ")
    terminal.type("\n")
    assert terminal.end() == FAILED
    assert "no session was disconnected" in terminal.shown
    assert sessions(admin.api, interface=vlan) == there


def test_the_answer_yes_disconnects_everybody(admin: Shell) -> None:
    vlan = a_vlan(admin.api)
    terminal = admin.at_terminal("subscribers", "disconnect", "--interface", vlan)
    terminal.expect("Disconnect them? [y/N] ")
    terminal.type("y\n")
    assert terminal.end() == 0
    assert sessions(admin.api, interface=vlan) == []


def test_an_option_answers_yes_beforehand(admin: Shell) -> None:
    vlan = a_vlan(admin.api)
    number = len(sessions(admin.api, interface=vlan))
    shown = admin.done("subscribers", "disconnect", "--yes", "--interface", vlan)
    assert shown.splitlines()[-1].startswith(f"{number} session")
    assert sessions(admin.api, interface=vlan) == []


def test_without_anybody_to_ask_nobody_is_disconnected(admin: Shell) -> None:
    vlan = a_vlan(admin.api)
    there = sessions(admin.api, interface=vlan)
    assert admin.run("subscribers", "disconnect", "--interface", vlan, feed="y\n").status == USAGE
    assert sessions(admin.api, interface=vlan) == there


def test_an_interface_that_nobody_is_on_needs_no_question(admin: Shell) -> None:
    assert (
        admin.done("subscribers", "disconnect", "--interface", "lo")
        == "0 sessions would be disconnected on lo\n"
    )


def test_an_interface_that_does_not_exist_is_said_not_to(admin: Shell) -> None:
    ended = admin.run("subscribers", "disconnect", "--interface", 'no "such" one')
    assert ended == (FAILED, "", "gatewayctl: No such interface\n")


def test_a_session_that_is_named_twice_ends_once(admin: Shell) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    targets = (chosen["username"], str(chosen["id"]))
    ended = admin.run("subscribers", "disconnect", "--yes", *targets)
    assert (ended.status, len(ended.out.splitlines())) == (0, 1)
    assert ended.err.count(chosen["username"]) == 1


def test_an_operator_disconnects_nobody(operator: Shell) -> None:
    ended = operator.run("subscribers", "disconnect", "--yes", "--interface", a_vlan(operator.api))
    assert ended == (DENIED, "", "gatewayctl: Admin role required\n")


# subscribers rate


def online(*names: str) -> Reply:
    """A list of sessions with these usernames, whose ids begin with 1."""
    sessions = [
        {"username": name, "id": number, "rate_down": 10**6, "rate_up": 10**6}
        for number, name in enumerate(names, 1)
    ]
    return 200, {"status": "ok", "data": {"sessions": sessions, "next_cursor": None}}


def who(session: dict[str, Any]) -> str:
    return f"{session['username']}, {session['ip_address']}, {session['mac_address']}"


def rows(names: list[str], down: str = "7mbit", up: str = "3mbit") -> str:
    return "".join(f"{name},{down},{up}\n" for name in names)


def test_rates_are_those_of_the_file(admin: Shell) -> None:
    chosen = with_a_name(admin.api, 3)
    names = [one["username"] for one in chosen]
    file = admin.write("night.csv", "username,down,up\n" + rows(names))
    assert (
        admin.done("subscribers", "rate", "--yes", "--file", file)
        == "3 changed, 0 failed, 0 not online, 0 bad, 0 not tried\n"
    )
    assert {rates(admin.api, one) for one in chosen} == {(7_000_000, 3_000_000)}
    # Once more does no harm.
    assert admin.done("subscribers", "rate", "--yes", "--file", file).startswith("3 changed")


def test_a_session_may_go_by_its_number(admin: Shell) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    admin.done(
        "subscribers", "rate", "--yes", "--file", "-", feed=f"id,down,up\n{chosen['id']},9mbit,2mbit\n"
    )
    assert rates(admin.api, chosen) == (9_000_000, 2_000_000)


def test_a_file_as_spreadsheets_write_it_is_read(admin: Shell) -> None:
    chosen = with_a_name(admin.api, 2)
    first, second = (one["username"] for one in chosen)
    head = '\ufeffusername,down,up\r\n\r\n# comment, "really\r\n'
    feed = f'{head}"{first}", "6 mbit",1mbit\r\n {second} ,6mbit,1mbit\r\n'
    admin.done("subscribers", "rate", "--yes", "--file", "-", feed=feed)
    assert {rates(admin.api, one) for one in chosen} == {(6_000_000, 1_000_000)}


def test_quotes_and_commas_in_a_name_are_part_of_it(admin: Shell) -> None:
    name = 'bob "the second", of somewhere'
    path = admin.folder / "quoted.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["username", "down", "up"], [name, "1mbit", "1mbit"]])
    ended = admin.run("subscribers", "rate", "--yes", "--file", str(path))
    assert f"line 2: {name} is not online" in ended.err


def test_a_rate_of_one_session_is_told_with_its_end(admin: Shell) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    wanted = ("--down", "9mbit", "--up", "4mbit", "--for", "1h")
    said = admin.done("subscribers", "rate", chosen["username"], *wanted)
    assert said.startswith(
        f"Rate change requested for session {chosen['id']}, {who(chosen)}: 9 Mbit/s down, 4 Mbit/s up, until "
    )
    shown = admin.done("subscribers", "show", chosen["username"])
    (until,) = re.findall(r"(?m)^Rates until +(.+)$", shown)
    assert said.strip().endswith(until.strip())


@pytest.mark.parametrize("given", [("--down", "250"), ("--up", "1.5"), ("--down", "9mbit", "--for", "1")])
def test_a_number_without_a_unit_changes_no_rate(admin: Shell, given: tuple[str, ...]) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    before = rates(admin.api, chosen)
    assert admin.run("subscribers", "rate", chosen["username"], *given).status == USAGE
    assert rates(admin.api, chosen) == before


def test_a_dry_run_changes_no_rate(admin: Shell) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    before = rates(admin.api, chosen)
    feed = "username,down,up\n" + rows([chosen["username"]], "5mbit")
    shown = admin.done("subscribers", "rate", "--dry-run", "--file", "-", feed=feed).splitlines()
    assert shown[-1] == "1 would change, 0 not online, 0 bad"
    assert re.split("  +", shown[-2])[2:] == [
        chosen["ip_address"], chosen["mac_address"],
        rate_text(before[0]), "5 Mbit/s", rate_text(before[1]), "3 Mbit/s",
    ]  # fmt: skip
    assert rates(admin.api, chosen) == before


def test_a_dry_run_of_a_file_checks_what_the_real_run_checks(admin: Shell) -> None:
    one, other = with_a_name(admin.api, 2)
    feed = "username,down,up\n" + rows([one["username"]], "9mbit") + rows([other["username"]], "xx")
    dry = admin.run("subscribers", "rate", "--dry-run", "--file", "-", feed=feed)
    before = rates(admin.api, one)
    real = admin.run("subscribers", "rate", "--yes", "--file", "-", feed=feed)
    assert dry == real
    assert dry.status == USAGE
    assert "line 3: down: must be a number and a unit, such as 50mbit" in dry.err
    assert rates(admin.api, one) == before


@pytest.mark.parametrize("way", ["target", "file"])
def test_a_dry_run_is_for_those_who_may_change(operator: Shell, way: str) -> None:
    (chosen,) = with_a_name(operator.api, 1)
    feed = "username,down,up\n" + rows([chosen["username"]])
    given = ("--file", "-") if way == "file" else (chosen["username"], "--down", "9mbit")
    ended = operator.run("subscribers", "rate", "--dry-run", *given, feed=feed)
    assert ended == (DENIED, "", "gatewayctl: Admin role required\n")


def test_a_dry_run_of_one_session_shows_the_former_and_the_new_rate(admin: Shell) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    before = rates(admin.api, chosen)
    said = admin.done("subscribers", "rate", chosen["username"], "--down", "77mbit", "--dry-run")
    assert said == (
        f"the rates of session {chosen['id']}, {who(chosen)}, would change: "
        f"down from {rate_text(before[0])} to 77 Mbit/s\n"
    )
    assert rates(admin.api, chosen) == before


def test_a_rate_that_is_none_fails_in_a_dry_run_too(admin: Shell) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    ended = admin.run("subscribers", "rate", chosen["username"], "--down", "xx", "--dry-run")
    assert ended.status == USAGE
    assert "'--down': must be a number and a unit" in ended.err


def test_the_answer_no_changes_no_rate_of_a_file(admin: Shell) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    before = rates(admin.api, chosen)
    file = admin.write("rates.csv", "username,down,up\n" + rows([chosen["username"]], "5mbit"))
    terminal = admin.at_terminal("subscribers", "rate", "--file", file)
    terminal.expect("Change their rates? [y/N] ")
    terminal.type("\n")
    assert terminal.end() == FAILED
    assert f"{rate_text(before[0])}" in terminal.shown
    assert "5 Mbit/s" in terminal.shown
    assert "nothing was changed" in terminal.shown
    assert rates(admin.api, chosen) == before


def test_without_anybody_to_ask_no_rate_of_a_file_is_changed(admin: Shell) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    before = rates(admin.api, chosen)
    feed = "username,down,up\n" + rows([chosen["username"]], "5mbit")
    assert admin.run("subscribers", "rate", "--file", "-", feed=feed).status == USAGE
    assert rates(admin.api, chosen) == before


def test_an_undo_file_brings_the_former_rates_back(admin: Shell) -> None:
    chosen = with_a_name(admin.api, 3)
    before = [rates(admin.api, one) for one in chosen]
    feed = "username,down,up\n" + rows([one["username"] for one in chosen], "43mbit", "17mbit")
    said = admin.run("subscribers", "rate", "--yes", "--file", "-", feed=feed).err
    (undo,) = re.findall("(?m)to undo the changes: gatewayctl (.+)$", said)
    assert {rates(admin.api, one) for one in chosen} == {(43_000_000, 17_000_000)}
    admin.done(*undo.split(" "), "--yes")
    assert [rates(admin.api, one) for one in chosen] == before


def test_without_an_undo_file_nothing_is_changed(admin: Shell) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    before = rates(admin.api, chosen)
    admin.environment["XDG_STATE_HOME"] = "/proc/nowhere"
    feed = "username,down,up\n" + rows([chosen["username"]], "5mbit")
    ended = admin.run("subscribers", "rate", "--yes", "--file", "-", feed=feed)
    assert ended.status == FAILED
    assert "cannot write the undo file" in ended.err
    assert rates(admin.api, chosen) == before


def test_the_csv_of_a_list_is_a_file_of_rates(admin: Shell) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    before = rates(admin.api, chosen)
    listed = admin.done("subscribers", "list", "--username", chosen["username"], "-o", "csv")
    file = admin.write("list.csv", listed.replace(f",{before[0]},", ",61mbit,"))
    admin.done("subscribers", "rate", "--yes", "--file", file)
    assert rates(admin.api, chosen) == (61_000_000, before[1])


def test_a_session_that_is_of_another_subscriber_now_is_left_alone(admin: Shell) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    before = rates(admin.api, chosen)
    feed = f"id,username,down,up\n{chosen['id']},somebody else,5mbit,5mbit\n"
    ended = admin.run("subscribers", "rate", "--yes", "--file", "-", feed=feed)
    assert ended.status == FAILED
    assert "line 2: somebody else is not online" in ended.err
    assert rates(admin.api, chosen) == before


BAD = {
    "a rate that is none": "a,xx,1mbit",
    "two fields": "a,1mbit",
    "four fields": "a,1mbit,1mbit,1mbit",
    "an empty field": "a,,1mbit",
    "a quote that isn't closed": '"a,1mbit,1mbit',
    "a quote within": 'a"b,1mbit,1mbit',
    "the same once more": "first,2mbit,2mbit",
}


@pytest.mark.parametrize("line", BAD.values(), ids=BAD)
def test_a_bad_line_is_named_by_its_number_and_nothing_is_changed(admin: Shell, line: str) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    before = rates(admin.api, chosen)
    feed = f"username,down,up\nfirst,1mbit,1mbit\n{line}\n" + rows([chosen["username"]], "4mbit")
    ended = admin.run("subscribers", "rate", "--yes", "--file", "-", feed=feed)
    assert ended.status == USAGE
    assert re.search(r"^gatewayctl: line 3: ", ended.err, re.MULTILINE)
    assert "nothing was changed" in ended.err
    assert rates(admin.api, chosen) == before


def test_bad_lines_may_be_passed_over_but_not_silently(admin: Shell) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    feed = "username,down,up\nnonsense\n" + rows([chosen["username"]], "4mbit")
    ended = admin.run("subscribers", "rate", "--yes", "--skip-bad", "--file", "-", feed=feed)
    assert ended.status == FAILED
    assert ended.out == "1 changed, 0 failed, 0 not online, 1 bad, 0 not tried\n"
    assert rates(admin.api, chosen)[0] == 4_000_000


def test_without_its_first_line_a_file_is_not_guessed_at(admin: Shell) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    before = rates(admin.api, chosen)
    ended = admin.run(
        "subscribers",
        "rate",
        "--yes",
        "--skip-bad",
        "--file",
        "-",
        feed=rows([chosen["username"]] * 2, "2mbit"),
    )
    assert ended.status == FAILED
    assert "line 1: must name the columns: username or id, down and up" in ended.err
    assert rates(admin.api, chosen) == before


@pytest.mark.parametrize("cut", ["", "username,down,up\nalice,100mbit,5"])
def test_a_file_that_is_not_whole_changes_nothing(admin: Shell, cut: str) -> None:
    assert admin.run("subscribers", "rate", "--yes", "--skip-bad", "--file", "-", feed=cut).status == USAGE


def test_a_change_that_fails_does_not_keep_the_rest_from_being_made(gateway: Gateway, shell: Shell) -> None:
    def reply(method: str, path: str) -> Reply:
        if method == "GET":
            return online("a", "b")
        if path.endswith("/1/rate"):
            return 400, {"status": "error", "message": "The shaper refuses"}
        return 200, {"status": "ok", "data": {}}

    with gateway.replaced(reply) as url:
        shell.environment["GATEWAY_URL"] = url
        feed = "username,down,up\n" + rows(["nobody", "a", "b"])
        ended = shell.run("subscribers", "rate", "--yes", "--file", "-", feed=feed)
    assert ended.status == FAILED
    assert "line 2: nobody is not online" in ended.err
    assert "line 3: a: The shaper refuses" in ended.err
    assert ended.out == "1 changed, 1 failed, 1 not online, 0 bad, 0 not tried\n"


def test_somebody_who_is_not_online_may_be_no_failure(admin: Shell) -> None:
    feed = "username,down,up\nnobody,1mbit,1mbit\n"
    assert admin.run("subscribers", "rate", "--yes", "--file", "-", feed=feed).status == FAILED
    admin.done("subscribers", "rate", "--yes", "--offline-ok", "--file", "-", feed=feed)


def test_progress_is_a_bar_at_a_terminal_and_lines_elsewhere(admin: Shell) -> None:
    names = [one["username"] for one in with_a_name(admin.api, 4)]
    file = admin.write("night.csv", "username,down,up\n" + rows(names))
    terminal = admin.at_terminal("subscribers", "rate", "--yes", "--file", file)
    assert terminal.end() == 0
    assert "0 failed" in terminal.shown
    assert "\x1b[?25l" in terminal.shown
    ended = admin.run("subscribers", "rate", "--yes", "--file", file)
    assert "gatewayctl: 2 of 4, 0 failed\n" in ended.err
    assert "\r" not in ended.err


def test_an_operator_is_refused_before_the_first_line(operator: Shell) -> None:
    names = [one["username"] for one in with_a_name(operator.api, 3)]
    feed = "username,down,up\n" + rows(names)
    ended = operator.run("subscribers", "rate", "--yes", "--file", "-", feed=feed)
    assert ended == (DENIED, "", "gatewayctl: Admin role required\n")


def test_a_gateway_that_goes_away_meanwhile_is_waited_for_and_then_given_up(
    gateway: Gateway, shell: Shell
) -> None:
    tried = []

    def reply(method: str, path: str) -> Reply:
        if method == "GET":
            return online("a", "b", "c")
        if method == "POST":
            # The check before the first change.
            return 200, {"status": "ok", "data": {}}
        tried.append(path)
        # The first time b fails only for a moment.
        if path.endswith("/1/rate") or (path.endswith("/2/rate") and len(tried) > 2):
            return 200, {"status": "ok", "data": {}}
        return 500, {"status": "error", "message": "Core daemon unreachable"}

    with gateway.replaced(reply) as url:
        shell.environment["GATEWAY_URL"] = url
        ended = shell.run(
            "subscribers", "rate", "--yes", "--file", "-", feed="username,down,up\n" + rows(["a", "b", "c"])
        )
    assert ended.status == AWAY
    assert ended.out == "2 changed, 0 failed, 0 not online, 0 bad, 1 not tried\n"
    assert "stopped at line 4; run it again for the rest" in ended.err
    assert (
        tried
        == ["/api/v1/subscribers/1/rate", *["/api/v1/subscribers/2/rate"] * 2]
        + ["/api/v1/subscribers/3/rate"] * 4
    )


# backup and restore


@pytest.fixture
def backup(admin: Shell) -> str:
    """A file; whatever a test stages or commits is gone after it."""
    path = str(admin.folder / "back up.json")
    admin.done("backup", path)
    return path


@pytest.fixture(autouse=True, scope="module")
def _configuration_as_it_was(gateway: Gateway) -> Iterator[None]:
    before = gateway.api.get("/system/config")
    yield
    assert gateway.api.get("/system/config") == before


def test_a_backup_has_all_but_the_secrets_and_says_so(admin: Shell) -> None:
    ended = admin.run("backup", "-")
    assert json.loads(ended.out) == admin.api.get("/system/config")
    assert "not in the backup" in ended.err
    assert [line.split()[-1] for line in ended.err.splitlines()[1:]] == [
        "api.users.admin.password_hash",
        "api.users.operator.password_hash",
        "radius.secret",
    ]


def test_a_backup_is_for_the_eyes_of_its_owner(admin: Shell, backup: str) -> None:
    assert Path(backup).stat().st_mode & 0o777 == 0o600


def test_a_backup_without_a_name_is_named_after_the_gateway(admin: Shell) -> None:
    admin.done("backup")
    (found,) = admin.folder.glob("*.json")
    assert re.fullmatch(r"bng1-\d{8}T\d{6}Z\.json", found.name)


def test_a_backup_that_fails_leaves_the_one_before(gateway: Gateway, admin: Shell, backup: str) -> None:
    before = Path(backup).read_text()
    with gateway.without_core():
        assert admin.run("backup", backup).status == AWAY
    assert Path(backup).read_text() == before
    assert not list(admin.folder.glob("*.json.*"))


def test_what_was_backed_up_comes_back(admin: Shell, backup: str) -> None:
    api = admin.api
    before = api.get("/system/config")
    set_value(api, "qos.default_down", "200mbit")
    set_value(api, "bgp", None)
    set_value(api, "demux.vlan_profiles.extra", '{"name":"extra","type":"dhcp","vlan_range":"10-20",'
              '"outer_vlan_range":"10-20","overhead_profile":"ipoe_qinq"}')  # fmt: skip
    set_value(api, "api.users.carol", {"username": "carol", "role": "operator", "password_hash": HASH})
    set_value(api, "api.users.operator.role", "admin")
    commit(api)
    shown = admin.run("restore", "--yes", backup).err
    # The operator has been an admin meanwhile, which ended his tokens.
    api.forget_tokens()
    assert '+ qos.default_down = "100mbit"' in shown
    assert "running secrets stay as they are" in shown
    assert api.get("/system/config") == before
    # The secrets that were masked in the file are still those of before.
    assert api.log_in("operator", api.environment["OPERATOR_PASSWORD"]).status_code == 200


def test_what_runs_already_is_not_restored(admin: Shell, backup: str) -> None:
    revisions = admin.api.get("/system/config/archive")
    assert admin.done("restore", "--yes", backup) == "the backup runs already; nothing to restore\n"
    assert admin.api.get("/system/config/archive") == revisions


def test_a_dry_run_shows_the_difference_and_leaves_nothing_staged(admin: Shell, backup: str) -> None:
    document = json.loads(Path(backup).read_text())
    document["system"]["hostname"] = "other"
    file = admin.write("other.json", json.dumps(document))
    shown = admin.done("restore", "--dry-run", file)
    assert '+ system.hostname = "other"' in shown
    assert staged(admin.api) == ""
    assert admin.api.get("/system/config")["system"]["hostname"] == "bng1"


def test_a_restore_ends_no_more_sessions_than_it_may(admin: Shell, backup: str) -> None:
    document = json.loads(Path(backup).read_text())
    document["demux"]["trunks"] = ["trunk0"]
    file = admin.write("other.json", json.dumps(document))
    known = admin.api.get("/subscribers/summary")["total"]
    shown = re.search(r"^([1-9]\d*) sessions would end$", admin.done("restore", "--dry-run", file), re.M)
    assert shown
    ended = admin.run("restore", "--yes", "--max-dropped", str(int(shown[1]) - 1), file)
    assert ended.status == FAILED
    assert f"would end {shown[1]} sessions" in ended.err
    assert admin.api.get("/subscribers/summary")["total"] == known
    assert staged(admin.api) == ""


def test_a_restored_configuration_that_is_not_kept_is_undone(admin: Shell, backup: str) -> None:
    document = json.loads(Path(backup).read_text())
    document["system"]["hostname"] = "other"
    file = admin.write("other.json", json.dumps(document))
    terminal = admin.at_terminal("restore", "--within", "2", file)
    terminal.expect("Commit this? [y/N] ")
    terminal.type("y\n")
    terminal.expect("Keep it? [y/N] ")
    assert admin.api.get("/system/config")["system"]["hostname"] == "other"
    terminal.type("n\n")
    assert terminal.end() == FAILED
    assert "not confirmed" in terminal.shown
    back = "the former configuration returns"
    wait_for(back, lambda: admin.api.get("/system/config")["system"]["hostname"] == "bng1", 10)


def test_a_restore_without_a_commit_leaves_nothing_staged(admin: Shell, backup: str) -> None:
    document = json.loads(Path(backup).read_text())
    document["system"]["hostname"] = "other"
    file = admin.write("other.json", json.dumps(document))
    terminal = admin.at_terminal("restore", file)
    terminal.expect("Commit this? [y/N] ")
    assert staged(admin.api)
    terminal.type("n\n")
    assert terminal.end() == FAILED
    assert staged(admin.api) == ""


def test_an_interrupted_restore_leaves_nothing_staged(admin: Shell, backup: str) -> None:
    document = json.loads(Path(backup).read_text())
    document["system"]["hostname"] = "other"
    file = admin.write("other.json", json.dumps(document))
    terminal = admin.at_terminal("restore", file)
    terminal.expect("Commit this? [y/N] ")
    terminal.type("\x03")
    assert terminal.end() != 0
    assert staged(admin.api) == ""


def test_what_somebody_else_has_staged_stops_a_restore(admin: Shell, backup: str) -> None:
    set_value(admin.api, "qos.default_up", "33mbit")
    commit(admin.api)
    set_value(admin.api, "qos.default_down", "44mbit")
    for more in ((), ("--discard", "--dry-run")):
        ended = admin.run("restore", "--yes", *more, backup)
        assert ended.status == FAILED
        assert '+ qos.default_down = "44mbit"' in ended.err
        assert "44mbit" in staged(admin.api)
    admin.done("restore", "--yes", "--discard", backup)
    assert staged(admin.api) == ""


@pytest.fixture
def operator_deleted(admin: Shell, backup: str) -> None:
    sent = admin.api.send("POST", "/system/config/delete", json={"path": "api.users.operator"})
    assert sent.status_code == 200
    commit(admin.api)


@pytest.mark.usefixtures("operator_deleted")
def test_a_secret_that_nobody_has_is_told_left_out_or_given(
    gateway: Gateway, admin: Shell, backup: str
) -> None:
    api = admin.api
    users = json.loads((gateway.state / "factory.json").read_text())["api"]["users"]
    (hash,) = (user["password_hash"] for user in users if user["username"] == "operator")
    ended = admin.run("restore", "--yes", backup)
    assert ended.status == FAILED
    assert "gatewayctl:   api.users.operator.password_hash\n" in ended.err
    assert staged(api) == ""
    ended = admin.run("restore", "--yes", "--leave-out", backup)
    assert ended.out == "the backup runs already; nothing to restore\n"
    assert "left out" in ended.err
    kept = admin.write("kept.json", json.dumps({"api.users.operator.password_hash": hash}))
    admin.done("restore", "--yes", "--secrets", kept, backup)
    api.forget_tokens()
    assert api.log_in("operator", api.environment["OPERATOR_PASSWORD"]).status_code == 200


def test_a_secret_that_the_backup_does_not_know_is_refused(admin: Shell, backup: str) -> None:
    kept = admin.write("kept.json", json.dumps({"api.users.opratr.password_hash": HASH}))
    ended = admin.run("restore", "--yes", "--secrets", kept, backup)
    assert ended.status == USAGE
    assert "no such secret: api.users.opratr.password_hash" in ended.err


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "{}", '{"system":{}}'])
def test_a_file_that_is_no_backup_is_refused(admin: Shell, text: str) -> None:
    ended = admin.run("restore", "--yes", admin.write("file.json", text))
    assert ended.status == USAGE
    assert "is not a backup of a configuration" in ended.err


def test_a_configuration_that_does_not_hold_is_refused_with_its_rules(admin: Shell, backup: str) -> None:
    document = json.loads(Path(backup).read_text())
    document["demux"]["trunks"] = ["nowhere"]
    ended = admin.run("restore", "--yes", admin.write("file.json", json.dumps(document)))
    assert ended.status == FAILED
    assert "demux.trunks: must be among interfaces.trunks" in ended.err
    assert staged(admin.api) == ""


# webhooks


@contextmanager
def registered(shell: Shell, *arguments: str) -> Iterator[str]:
    id = shell.done("webhooks", "add", *arguments).strip()
    try:
        yield id
    finally:
        assert shell.done("webhooks", "remove", "--yes", id) == f"Webhook {id} deleted\n"


def test_a_webhook_is_registered_tested_and_signed(admin: Shell) -> None:
    secret = admin.write("secret file", f"{SIGNING_SECRET}\n")
    with Receiver() as receiver, registered(admin, "--secret-file", secret, receiver.url) as id:
        assert admin.done("webhooks", "test", id) == "delivered\n"
        (received,) = receiver.received
        Webhook(SIGNING_SECRET).verify(received.body, dict(received.headers))
        assert "delivered" in admin.done("webhooks", "deliveries", id)


def test_a_webhook_that_fails_in_a_row_is_listed_with_the_end_of_its_pause(admin: Shell) -> None:
    with registered(admin, "http://127.0.0.1:9/") as id:
        for _ in range(3):
            admin.run("webhooks", "test", id)
        (row,) = (row for row in admin.done("webhooks", "list").splitlines() if row.startswith(id))
        assert re.search(r"  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00$", row)
        assert row[-25:] in admin.done("webhooks", "deliveries", id)


def test_a_test_that_fails_says_why(admin: Shell) -> None:
    with Receiver(answer(503)) as receiver, registered(admin, receiver.url) as id:
        ended = admin.run("webhooks", "test", id)
        assert ended.status == FAILED
        assert "503" in ended.err


def test_webhooks_are_listed_with_the_events_they_get(admin: Shell) -> None:
    with registered(admin, "--event", "session.up", "http://127.0.0.1:9/up") as id:
        rows = admin.done("webhooks", "list").splitlines()
        assert [row.split() for row in rows if row.startswith(id)] == [
            [id, "http://127.0.0.1:9/up", "session.up", "registered", "well", "-", "-"]
        ]
    assert id not in admin.done("webhooks", "list")


def test_what_is_wrong_with_a_webhook_is_named_field_by_field(admin: Shell) -> None:
    ended = admin.run("webhooks", "add", "--event", "session.sideways", "gopher://x")
    assert ended.status == FAILED
    assert "gatewayctl: URL: must begin with http" in ended.err
    assert "gatewayctl: --event: must be one of" in ended.err


@pytest.mark.parametrize("command", ["test", "deliveries", "remove"])
def test_a_webhook_that_is_not_there_is_no_webhook(admin: Shell, command: str) -> None:
    ended = admin.run("webhooks", command, "wh/../no such")
    assert ended.status == FAILED
    assert ended.err
    assert admin.run("webhooks", command).status == USAGE


# webhooks, as scripts list them


# config


@pytest.fixture
def clean(admin: Shell) -> Iterator[Shell]:
    """Nothing is staged, before and after."""
    assert staged(admin.api) == ""
    yield admin
    admin.api.send("POST", "/system/config/discard")


def test_a_value_is_set_compared_committed_and_confirmed(clean: Shell) -> None:
    before = clean.api.get("/system/config")["qos"]["default_down"]
    clean.done("config", "set", "qos.default_down", "77mbit")
    shown = clean.done("config", "compare")
    assert '+ qos.default_down = "77mbit"' in shown
    assert "0 sessions would end" in shown
    said = clean.done("config", "commit", "--yes", "--comment", "for a test", "--confirm-within", "60")
    assert "unless confirmed" in said
    clean.done("config", "confirm")
    assert clean.done("config", "show", "qos.default_down") == 'qos.default_down = "77mbit"\n'
    assert [each["revision"] for each in clean.json("config", "archive")[:2]] == [0, 1]
    clean.done("config", "rollback", "1")
    clean.done("config", "commit", "--yes")
    assert clean.api.get("/system/config")["qos"]["default_down"] == before


def test_a_commit_that_waits_is_shown_and_another_one_says_that_it_confirms_it(clean: Shell) -> None:
    clean.done("config", "set", "qos.default_down", "78mbit")
    clean.done("config", "commit", "--yes", "--confirm-within", "60")
    shown = clean.done("config", "compare")
    assert shown.startswith("no changes\nthe last commit must be confirmed until ")
    clean.done("config", "rollback", "1")
    assert "a commit without --confirm-within confirms it too" in clean.done("config", "compare")
    assert clean.done("config", "commit", "--yes") == "Committed 1 change, and confirmed the commit before\n"
    assert clean.done("config", "compare") == "no changes\n"


def test_a_commit_shows_the_changes_and_asks(clean: Shell) -> None:
    clean.done("config", "set", "qos.default_up", "7mbit")
    terminal = clean.at_terminal("config", "commit")
    terminal.expect('+ qos.default_up = "7mbit"')
    terminal.expect("Commit this? [y/N] ")
    terminal.type("n\n")
    assert terminal.end() == FAILED
    assert clean.run("config", "commit").status == USAGE
    assert staged(clean.api)


@pytest.mark.parametrize(
    ("command", "question"), [("commit", "Commit this?"), ("discard", "Discard these changes?")]
)
def test_a_change_after_the_changes_were_shown_stays_in_the_candidate(
    clean: Shell, command: str, question: str
) -> None:
    clean.done("config", "set", "qos.default_up", "7mbit")
    terminal = clean.at_terminal("config", command)
    terminal.expect(f"{question} [y/N] ")
    set_value(clean.api, "qos.default_down", "8mbit")
    terminal.type("y\n")
    assert terminal.end() == FAILED
    assert "has changed since" in terminal.shown
    assert "8mbit" in staged(clean.api)


def test_a_dry_run_commits_nothing(clean: Shell) -> None:
    clean.done("config", "set", "qos.default_up", "7mbit")
    assert "0 sessions would end" in clean.done("config", "commit", "--dry-run")
    assert staged(clean.api)


def test_a_commit_ends_no_more_sessions_than_it_may(clean: Shell) -> None:
    clean.done("config", "set", "demux.trunks", '["trunk0"]')
    ended = clean.run("config", "commit", "--yes", "--max-dropped", "0")
    assert ended.status == FAILED
    assert "would end" in ended.err


def test_the_rule_that_a_value_breaks_is_named_with_its_field(clean: Shell) -> None:
    ended = clean.run("config", "set", "qos.default_down", "fast")
    assert (ended.status, ended.out) == (FAILED, "")
    assert ended.err == "gatewayctl: qos.default_down: must be a number and a unit, such as 50mbit\n"


def test_a_rate_without_its_unit_is_not_set(clean: Shell) -> None:
    ended = clean.run("config", "set", "qos.default_down", "100000")
    expected = "gatewayctl: qos.default_down: must have a unit, such as 250mbit\n"
    assert ended == (USAGE, "", expected)
    clean.done("config", "set", "qos.default_down", "100 Mbit/s")


def test_a_secret_may_come_by_standard_input(clean: Shell) -> None:
    clean.done("config", "set", "radius.secret", "-", feed="verysecret\n")
    assert "radius.secret" in staged(clean.api)


def test_a_change_names_the_item_by_its_key(clean: Shell) -> None:
    path = 'bgp.neighbors."10.255.0.2".description'
    said = clean.done("config", "set", "bgp.neighbors.0.description", "core9")
    assert said == f"{path} is set in the candidate\n"
    assert clean.json("config", "delete", "bgp.neighbors.0.description") == {"path": path}


def test_a_key_whose_quotes_the_shell_has_removed_changes_nobody(clean: Shell) -> None:
    local = json.dumps([{"username": name, "password": f"pw-{name}"} for name in ("2", "7", "1")])
    clean.done("config", "set", "subscribers.local", local)
    before = staged(clean.api)
    for command in (("set", "subscribers.local.1.password", "x"), ("delete", "subscribers.local.1")):
        ended = clean.run("config", *command)
        assert (ended.status, ended.out) == (FAILED, "")
        assert ended.err.startswith(
            f"gatewayctl: {command[1]}: 1 is an index here, and also the key of an item"
        )
        assert 'subscribers.local."1"; at the index is subscribers.local."7": write the key' in ended.err
    assert staged(clean.api) == before
    ended = clean.run("config", "show", "bgp.neighbors.10.255.0.2")
    assert ended.err.endswith("a shell removes them: 'bgp.neighbors.\"KEY\"'\n")


def test_null_in_letters_is_refused_and_json_null_is_in_the_json_of_an_item(clean: Shell) -> None:
    item = 'bgp.neighbors."10.255.0.2"'
    ended = clean.run("config", "set", f"{item}.password", "null")
    said = f"gatewayctl: {item}.password: must not be the text null: delete removes it\n"
    assert ended == (FAILED, "", said)
    clean.done("config", "set", item, '{"remote_as": 64513, "password": null}')
    (neighbor, *_) = clean.json("config", "show", "--candidate")["bgp"]["neighbors"]
    assert neighbor == {"address": "10.255.0.2", "remote_as": 64513, "password": None}


def test_a_value_is_deleted(clean: Shell) -> None:
    clean.done("config", "delete", 'bgp.neighbors."10.255.0.6"')
    assert "10.255.0.6" in staged(clean.api)


def test_changes_are_discarded(clean: Shell) -> None:
    clean.done("config", "set", "qos.default_up", "7mbit")
    assert clean.run("config", "discard").status == USAGE
    clean.done("config", "discard", "--yes")
    assert staged(clean.api) == ""


def test_the_candidate_is_edited_as_a_whole(clean: Shell) -> None:
    document = clean.json("config", "show", "--candidate")
    document["qos"]["default_up"] = "8mbit"
    document["api"]["token_lifetime"] = 1800
    del document["bgp"]["neighbors"][1]
    shown = clean.done("config", "edit", "--file", clean.write("candidate.json", json.dumps(document)))
    assert '+ qos.default_up = "8mbit"' in shown
    assert "+ api.token_lifetime = 1800" in shown
    assert "password_hash" not in shown


def test_a_candidate_in_another_encoding_is_refused(clean: Shell) -> None:
    file = clean.folder / "candidate.json"
    file.write_bytes('{"system": {"hostname": "ü"}}'.encode("iso-8859-1"))
    ended = clean.run("config", "edit", "--file", str(file))
    assert ended.status == USAGE
    assert ended.err.startswith("gatewayctl: the configuration is not JSON: 'utf-8' codec can't decode ")


def test_the_candidate_is_edited_in_an_editor(clean: Shell) -> None:
    clean.environment["EDITOR"] = "sed -i s/20mbit/9mbit/"
    terminal = clean.at_terminal("config", "edit")
    assert terminal.end() == 0
    assert '+ qos.default_up = "9mbit"' in terminal.shown


@pytest.mark.parametrize(
    ("typed", "reason"),
    [("s/20mbit/fast/", "qos.default_up"), ("s/20mbit.*/20mbit/", "the configuration is not JSON")],
)
def test_what_was_typed_in_the_editor_is_kept_if_it_is_refused(
    clean: Shell, tmp_path: Path, typed: str, reason: str
) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    clean.environment |= {"EDITOR": f"sed -i {typed}", "TMPDIR": str(folder)}
    terminal = clean.at_terminal("config", "edit")
    assert terminal.end() != 0
    (kept,) = folder.iterdir()
    shown = " ".join(terminal.shown.split())
    assert f"your text is in {kept}: " in shown
    assert reason in shown
    assert kept.stat().st_mode & 0o777 == 0o600
    assert ("fast" if "fast" in typed else '"20mbit') in kept.read_text()


@pytest.mark.parametrize("levels", [500, 100_000])
@pytest.mark.parametrize("words", [("restore", "--yes"), ("config", "edit", "--file")])
def test_json_of_many_levels_is_refused_in_a_sentence(
    clean: Shell, words: tuple[str, ...], levels: int
) -> None:
    file = clean.write("deep.json", '{"a":' * levels + "1" + "}" * levels)
    ended = clean.run(*words, file)
    assert ended.status == USAGE
    assert ended.err.startswith("gatewayctl: ")
    assert "Traceback" not in ended.err


def test_a_revision_is_shown_and_compared(clean: Shell) -> None:
    set_value(clean.api, "qos.default_up", "11mbit")
    commit(clean.api)
    assert "qos.default_up" in clean.done("config", "compare", "--revision", "1")
    clean.done("config", "show", "--revision", "1", "qos")
    clean.done("config", "rollback", "1")
    clean.done("config", "commit", "--yes")


@pytest.fixture
def former_rate(clean: Shell) -> Iterator[None]:
    """Puts back the default rate upstream, which a test commits."""
    before = clean.api.get("/system/config")["qos"]["default_up"]
    yield
    set_value(clean.api, "qos.default_up", before)
    commit(clean.api)


@pytest.mark.usefixtures("former_rate")
def test_the_archive_begins_with_the_running_configuration(clean: Shell) -> None:
    set_value(clean.api, "qos.default_up", "12mbit")
    clean.done("config", "commit", "--yes", "--comment", "faster")
    first, second, *_ = clean.json("config", "archive")
    assert (first["revision"], first["author"], first["comment"]) == (0, "admin", "faster")
    assert second["revision"] == 1
    assert clean.json("config", "archive", "0") == {**first, "configuration": clean.api.get("/system/config")}
    assert clean.done("config", "show", "--revision", "0") == clean.done("config", "show")


@pytest.mark.usefixtures("former_rate")
def test_two_revisions_are_compared(clean: Shell) -> None:
    for rate in ("12mbit", "13mbit"):
        set_value(clean.api, "qos.default_up", rate)
        commit(clean.api)
    set_value(clean.api, "qos.default_up", "14mbit")

    def difference(*revisions: str) -> list[str]:
        shown = clean.done("config", "compare", *revisions).splitlines()
        return re.findall(r'[-+] qos.default_up = "(\w+)"', "\n".join(shown))

    assert difference("1", "0") == ["12mbit", "13mbit"]
    assert difference("0", "1") == ["13mbit", "12mbit"]
    assert difference("1") == ["12mbit", "14mbit"]
    assert difference() == difference("0") == ["13mbit", "14mbit"]
    clean.done("config", "discard", "--yes")
    assert clean.done("config", "compare", "1", "1") == "no changes\n"
    assert clean.run("config", "compare", "0", "99").status == FAILED


@pytest.mark.usefixtures("former_rate")
def test_the_audit_log_shows_the_difference_of_a_commit(clean: Shell) -> None:
    before = clean.api.get("/system/config")["qos"]["default_up"]
    set_value(clean.api, "qos.default_up", "15mbit")
    clean.done("config", "commit", "--yes")
    shown = clean.done("audit", "--action", "configuration.commit", "--limit", "1")
    assert f'Committed 1 change: - qos.default_up = "{before}", + qos.default_up = "15mbit"\n' in shown


def test_a_path_with_nothing_is_refused(clean: Shell) -> None:
    assert clean.run("config", "show", "qos.nothing").status == FAILED
    assert clean.run("config", "show", "qos..x").status == USAGE


# users


def test_a_user_is_added_changed_and_removed(clean: Shell) -> None:
    file = clean.write("word", "watchword\n")
    clean.done("users", "add", "carol", "--role", "operator", "--password-file", file, "--commit")
    assert {"username": "carol", "role": "operator"}.items() <= clean.json("users", "list")[-1].items()
    assert clean.api.log_in("carol", "watchword").status_code == 200
    clean.done("users", "role", "carol", "--role", "admin", "--commit")
    clean.done("users", "password", "carol", "--password-file", "-", "--commit", feed="another\n")
    assert clean.api.log_in("carol", "another").status_code == 200
    assert clean.run("users", "remove", "carol").status == USAGE
    clean.done("users", "remove", "carol", "--yes", "--commit")
    assert "carol" not in clean.done("users", "list")


def test_all_tokens_of_a_user_end(clean: Shell) -> None:
    # Not a user whose token other tests have.
    clean.done(
        "users", "add", "dave", "--role", "operator", "--password-file", "-", "--commit", feed="watchword\n"
    )
    token = clean.api.log_in("dave", "watchword").json()["access_token"]
    assert clean.done("users", "logout", "dave") == "Ended all tokens of dave\n"
    assert clean.api.send("GET", "/subscribers/summary", token=token).status_code == 401
    clean.done("users", "remove", "dave", "--yes", "--commit")


def test_a_user_is_staged_beside_the_changes_of_others_but_not_committed_with_them(clean: Shell) -> None:
    clean.done("config", "set", "qos.default_up", "7mbit")
    ended = clean.run("users", "role", "operator", "--role", "admin", "--commit")
    assert ended.status == FAILED
    assert "the candidate has these changes" in ended.err
    clean.done("users", "role", "operator", "--role", "admin")
    assert "api.users.operator.role" in staged(clean.api)


def test_a_user_that_is_there_or_is_not_is_told(clean: Shell) -> None:
    there = clean.run("users", "add", "admin", "--role", "admin", "--password-file", "-", feed="x\n")
    assert (there.status, there.err) == (FAILED, "gatewayctl: there is a user admin already\n")
    absent = clean.run("users", "role", "nobody", "--role", "admin")
    assert (absent.status, absent.err) == (FAILED, "gatewayctl: there is no user nobody\n")
