"""`gatewayctl` changes a gateway: sessions, rates, webhooks and users."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from standardwebhooks import Webhook

from gateway_contract.base.texts import format_rate
from tests.support.by_api import a_vlan, rates, sessions, staged, with_a_name
from tests.support.receivers import Receiver, answer
from tests.support.running_gateway import Gateway, Reply
from tests.support.shell import Ended, Shell

FAILED, USAGE, AWAY, DENIED = 1, 2, 3, 4
NOT_ADMIN = (DENIED, "", "gatewayctl: Admin role required\n")
NO_TERMINAL = (USAGE, "", "gatewayctl: no terminal for the confirmation: use --yes\n")

SIGNING_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HEAD = "username,down,up\n"


# subscribers disconnect


def test_sessions_of_an_interface_are_shown_and_disconnected_after_yes(admin: Shell) -> None:
    vlan = a_vlan(admin.api)
    there = sessions(admin.api, interface=vlan)
    command = ("subscribers", "disconnect", "--interface", vlan)
    shown = admin.done(*command, "--dry-run")
    assert all(one["username"] in shown for one in there)
    assert f"would be disconnected on {vlan}" in shown
    ended = admin.run(*command, feed="y\n")
    assert (ended.status, ended.err.splitlines()[-1]) == (USAGE, NO_TERMINAL[2].rstrip())
    for typed, status in (("", FAILED), ("y", 0)):
        assert sessions(admin.api, interface=vlan) == there
        terminal = admin.at_terminal(*command)
        terminal.expect("Disconnect them? [y/N] ")
        terminal.type(f"{typed}\n")
        assert terminal.end() == status
        assert ("no session was disconnected" in terminal.shown) is bool(status)
    assert sessions(admin.api, interface=vlan) == []
    # Without a session, there is no question.
    assert admin.done(*command[:3], "lo") == "0 sessions would be disconnected on lo\n"
    assert admin.run(*command[:3], 'no "such"') == (FAILED, "", "gatewayctl: No such interface\n")


def test_a_session_that_is_named_twice_ends_once(admin: Shell) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    ended = admin.run("subscribers", "disconnect", "--yes", chosen["username"], str(chosen["id"]))
    assert (ended.status, len(ended.out.splitlines())) == (0, 1)
    assert ended.err.count(chosen["username"]) == 1


def test_an_operator_changes_nothing(operator: Shell) -> None:
    chosen = with_a_name(operator.api, 3)
    disconnect = ("disconnect", "--yes", "--interface", a_vlan(operator.api))
    rate = ("rate", chosen[0]["username"], "--down", "9mbit", "--dry-run")
    for words in (disconnect, rate, ("rate", "--file", "-", "--dry-run")):
        assert operator.run("subscribers", *words, feed=HEAD + rows(chosen)) == NOT_ADMIN


def test_a_session_that_cannot_be_disconnected_does_not_keep_the_others(
    gateway: Gateway, shell: Shell
) -> None:
    def reply(method: str, path: str) -> Reply:
        if method == "DELETE" and path.endswith("/1"):
            return 400, {"status": "error", "message": "The session holds"}
        id = int(path.rpartition("/")[2])
        found = {"id": id, "username": f"user{id}", "ip_address": None, "mac_address": "m", "message": "Done"}
        more = {"ppp_interface": None, "session_type": "PPPoE", "access_interface": "trunk0.7"}
        return 200, {"status": "ok", "data": found | more}

    with gateway.replaced(reply) as url:
        shell.environment["GATEWAY_URL"] = url
        ended = shell.run("subscribers", "disconnect", "--yes", "id:1", "id:2")
    assert (ended.status, ended.out) == (FAILED, "")
    assert "session 1, user1, -, m: The session holds\n" in ended.err
    assert "Done: user2, -, m\ngatewayctl: 1 of 2 sessions disconnected\n" in ended.err


# subscribers rate: of one session


def who(session: dict[str, Any]) -> str:
    return f"{session['username']}, {session['ip_address']}, {session['mac_address']}"


def test_a_rate_of_one_session_is_for_a_time_and_told_with_its_end(admin: Shell) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    down, up = rates(admin.api, chosen)
    command = ("subscribers", "rate", chosen["username"])
    said = admin.done(*command, "--down", "77mbit", "--dry-run")
    assert said == (
        f"the rates of session {chosen['id']}, {who(chosen)}, would change: "
        f"down from {format_rate(down)} to 77 Mbit/s\n"
    )
    assert rates(admin.api, chosen) == (down, up)
    said = admin.done(*command, "--down", "9mbit", "--for", "1h")
    assert said.startswith(
        f"Rate change requested for session {chosen['id']}, {who(chosen)}: "
        f"9 Mbit/s down, {format_rate(up)} up, until "
    )
    assert rates(admin.api, chosen) == (9_000_000, up)
    (until,) = re.findall(r"(?m)^Rates until +(.+)$", admin.done("subscribers", "show", chosen["username"]))
    assert said.strip().endswith(until.strip())
    ended = admin.run(*command, "--down", "250")
    assert (ended.status, "must have a unit, such as 250mbit" in ended.err) == (USAGE, True)
    assert rates(admin.api, chosen) == (9_000_000, up)


# subscribers rate: of a file


def rows(chosen: list[dict[str, Any]], down: str = "7mbit", up: str = "3mbit") -> str:
    return "".join(f"{each['username']},{down},{up}\n" for each in chosen)


def by_file(shell: Shell, feed: str, *options: str) -> Ended:
    return shell.run("subscribers", "rate", "--file", "-", *options, feed=feed)


def test_rates_are_those_of_the_file_and_the_undo_file_brings_the_former_ones_back(admin: Shell) -> None:
    chosen = with_a_name(admin.api, 3)
    before = [rates(admin.api, one) for one in chosen]
    feed = HEAD + rows(chosen, "43mbit", "17mbit")
    dry = by_file(admin, feed, "--dry-run")
    *_, last, counts = dry.out.splitlines()
    assert counts == "3 would change, 0 not online, 0 bad"
    assert re.split("  +", last)[2:] == [
        *(chosen[2]["ip_address"], chosen[2]["mac_address"]),
        *(format_rate(before[2][0]), "43 Mbit/s", format_rate(before[2][1]), "17 Mbit/s"),
    ]
    assert by_file(admin, feed).status == USAGE
    assert [rates(admin.api, one) for one in chosen] == before
    ended = by_file(admin, feed, "--yes")
    assert (ended.status, ended.out) == (0, "3 changed, 0 failed, 0 not online, 0 bad, 0 not tried\n")
    assert "gatewayctl: 2 of 3, 0 failed\n" in ended.err
    (undo,) = re.findall("(?m)to undo the changes: gatewayctl (.+)$", ended.err)
    assert {rates(admin.api, one) for one in chosen} == {(43_000_000, 17_000_000)}
    admin.done(*undo.split(" "), "--yes")
    assert [rates(admin.api, one) for one in chosen] == before
    admin.environment["XDG_STATE_HOME"] = admin.write("a file", "")
    ended = by_file(admin, feed, "--yes")
    assert (ended.status, "cannot write the undo file" in ended.err) == (FAILED, True)
    assert [rates(admin.api, one) for one in chosen] == before


def test_the_rates_of_a_file_are_changed_at_a_terminal_after_yes(admin: Shell) -> None:
    (chosen, *_) = there = with_a_name(admin.api, 3)
    before = rates(admin.api, chosen)
    file = admin.write("rates.csv", HEAD + rows(there, "5mbit"))
    for typed, status in (("", FAILED), ("y", 0)):
        assert rates(admin.api, chosen) == before
        terminal = admin.at_terminal("subscribers", "rate", "--file", file)
        terminal.expect("Change their rates? [y/N] ")
        assert format_rate(before[0]) in terminal.shown
        terminal.type(f"{typed}\n")
        assert terminal.end() == status
        # The bar of the progress hides the cursor.
        assert ("\x1b[?25l" in terminal.shown) is not bool(status)
    assert rates(admin.api, chosen)[0] == 5_000_000


def test_a_session_of_a_file_goes_by_its_id_unless_it_is_of_another_subscriber_now(admin: Shell) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    assert by_file(admin, f"id,down,up\n{chosen['id']},9mbit,2mbit\n", "--yes").status == 0
    assert rates(admin.api, chosen) == (9_000_000, 2_000_000)
    ended = by_file(admin, f"id,username,down,up\n{chosen['id']},somebody else,5mbit,5mbit\n", "--yes")
    assert ended.status == FAILED
    assert "line 2: somebody else is not online" in ended.err
    assert rates(admin.api, chosen) == (9_000_000, 2_000_000)
    assert by_file(admin, f"{HEAD}nobody,1mbit,1mbit\n", "--yes", "--offline-ok").status == 0


def test_a_bad_line_changes_nothing_unless_bad_lines_may_be_passed_over(admin: Shell) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    before = rates(admin.api, chosen)
    feed = HEAD + rows([chosen], "4mbit") + "a,xx,1mbit\n"
    dry, real = by_file(admin, feed, "--dry-run"), by_file(admin, feed, "--yes")
    assert dry == real
    assert (real.status, real.out) == (USAGE, "")
    assert real.err == (
        "gatewayctl: line 3: down: must be a number and a unit, such as 50mbit\n"
        "gatewayctl: 1 bad line: nothing was changed; --skip-bad ignores them\n"
    )
    assert rates(admin.api, chosen) == before
    ended = by_file(admin, feed, "--yes", "--skip-bad")
    assert (ended.status, ended.out) == (FAILED, "1 changed, 0 failed, 0 not online, 1 bad, 0 not tried\n")
    assert rates(admin.api, chosen)[0] == 4_000_000
    # Without its first line, a file is not guessed at.
    assert by_file(admin, rows([chosen] * 2, "2mbit"), "--yes", "--skip-bad").status == FAILED
    assert rates(admin.api, chosen)[0] == 4_000_000


def test_a_change_that_fails_does_not_keep_the_rest_until_the_gateway_goes_away(
    gateway: Gateway, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gatewayctl.commands.rates._RETRY_PAUSES_SECONDS", (0.01, 0.02, 0.04))
    tried = []
    names = [{"username": name} for name in ("a", "b", "c", "d", "e")]
    online = [each | {"id": id, "rate_down": 1, "rate_up": 1} for id, each in enumerate(names, 1)]

    def reply(method: str, path: str) -> Reply:
        if method == "GET":
            return 200, {"status": "ok", "data": {"sessions": online, "next_cursor": None}}
        if method == "POST":
            # The check before the first change.
            return 200, {"status": "ok", "data": {}}
        id = int(path.split("/")[-2])
        tried.append(id)
        if id == 1:
            return 400, {"status": "error", "message": "The shaper refuses"}
        # Session 2 is away for a moment, session 4 for good.
        if id == 4 or tried == [1, 2]:
            return 500, {"status": "error", "message": "Core daemon unreachable"}
        return 200, {"status": "ok", "data": {}}

    with gateway.replaced(reply) as url:
        shell.environment["GATEWAY_URL"] = url
        ended = by_file(shell, HEAD + "nobody,1m,1m\n" + rows(names), "--yes")
    assert ended.status == AWAY
    assert ended.out == "2 changed, 1 failed, 1 not online, 0 bad, 2 not tried\n"
    assert "line 2: nobody is not online" in ended.err
    assert "line 3: a: The shaper refuses" in ended.err
    assert "stopped at line 6; run it again for the rest" in ended.err
    assert tried == [1, 2, 2, 3, *[4] * 4]


def test_a_failure_at_a_terminal_has_a_line_of_its_own_in_place_of_the_bar(
    gateway: Gateway, shell: Shell
) -> None:
    online = [{"id": id, "username": name, "rate_down": 1, "rate_up": 1} for id, name in enumerate("abc", 1)]

    def reply(method: str, path: str) -> Reply:
        if method == "GET":
            return 200, {"status": "ok", "data": {"sessions": online, "next_cursor": None}}
        if path.endswith("/2/rate"):
            return 400, {"status": "error", "message": "The shaper refuses"}
        return 200, {"status": "ok", "data": {}}

    file = shell.write("rates.csv", HEAD + rows(online))
    with gateway.replaced(reply) as url:
        shell.environment["GATEWAY_URL"] = url
        terminal = shell.at_terminal("subscribers", "rate", "--yes", "--file", file)
        assert terminal.end() == FAILED
    lines = terminal.shown.splitlines()
    assert "gatewayctl: line 3: b: The shaper refuses" in [line.rpartition("\x1b[K")[2] for line in lines]
    (bar,) = (line for line in lines if "3/3" in line)
    assert "3/3  1 failed" in bar


# Jobs


def test_all_sessions_that_match_get_a_rate_as_a_job_and_are_disconnected(admin: Shell) -> None:
    vlan = a_vlan(admin.api)
    there = sessions(admin.api, interface=vlan)
    where = ("subscribers", "rate", "--where", f"interface={vlan}", "--up", "4mbit")
    assert f"{len(there)} session" in admin.done(*where, "--dry-run")
    assert admin.run(*where).status == USAGE
    assert f"{len(there)} done, 0 gone, 0 failed" in admin.done(*where, "--yes")
    assert {rates(admin.api, each)[1] for each in there} == {4_000_000}
    job = admin.json("jobs", "list")[0]
    assert (job["state"], job["total"]) == ("done", len(there))
    assert admin.json("jobs", "show", str(job["id"])) == job
    assert admin.run("jobs", "cancel", str(job["id"])).status == FAILED
    admin.done("subscribers", "disconnect", "--where", f"interface={vlan}", "--yes")
    assert sessions(admin.api, interface=vlan) == []


@pytest.mark.parametrize(
    ("where", "status", "said"),
    [
        (
            "color=red",
            FAILED,
            "--where color: is not a known field; known fields: type, username, ip_address",
        ),
        ("red", USAGE, "Error: Invalid value for '--where': must be FIELD=VALUE\n"),
        ("search=120", USAGE, "gatewayctl: --where search: 120 may be a session id, a VLAN id or a part"),
    ],
)
def test_a_filter_that_is_none_or_may_mean_others_changes_nothing(
    admin: Shell, where: str, status: int, said: str
) -> None:
    for command in (("disconnect", "--yes"), ("rate", "--down", "1mbit", "--yes")):
        ended = admin.run("subscribers", *command, "--where", where)
        assert (ended.status, ended.out, said in ended.err) == (status, "", True)


def test_a_job_that_fails_in_part_names_its_failures(gateway: Gateway, shell: Shell) -> None:
    job = {"id": 7, "state": "done", "total": 2, "done": 1, "gone": 0, "failed": 1}
    job["errors"] = [{"session_id": 12, "message": "The shaper refuses"}]
    replies = {"POST": {"message": "2 sessions", "count": 2, "sessions": []} | job | {"state": "running"}}

    with gateway.replaced(lambda method, _: (200, {"status": "ok", "data": replies.get(method, job)})) as url:
        shell.environment["GATEWAY_URL"] = url
        ended = shell.run("subscribers", "disconnect", "--where", "type=dhcp", "--yes")
    assert (ended.status, ended.out) == (FAILED, "job 7 is done: 1 done, 0 gone, 1 failed, of 2\n")
    assert "gatewayctl: session 12: The shaper refuses\n" in ended.err


# webhooks


def test_a_webhook_is_registered_tested_and_signed_and_a_failure_says_why(admin: Shell) -> None:
    secret = admin.write("secret file", f"{SIGNING_SECRET}\n")
    options = ("--secret-file", secret, "--event", "session.up")
    replies = iter([answer(200)])
    with Receiver(lambda _: next(replies, answer(503))) as receiver:
        id = admin.done("webhooks", "add", *options, receiver.url).strip()

        def row() -> str:
            (found,) = (row for row in admin.done("webhooks", "list").splitlines() if row.startswith(id))
            return found

        assert row().split() == [id, receiver.url, "session.up", "registered", "well", "-", "-"]
        assert admin.done("webhooks", "test", id) == "delivered\n"
        (received,) = receiver.received
        Webhook(SIGNING_SECRET).verify(received.body, dict(received.headers))
        for _ in range(3):
            ended = admin.run("webhooks", "test", id)
            assert (ended.status, "503" in ended.err) == (FAILED, True)
        assert re.search(r"  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00$", row())
        deliveries = admin.done("webhooks", "deliveries", id)
        assert "delivered" in deliveries
        assert row()[-25:] in deliveries
        assert admin.done("webhooks", "remove", "--yes", id) == f"Webhook {id} deleted\n"
    assert id not in admin.done("webhooks", "list")


def test_a_webhook_that_is_wrong_or_unknown_is_refused(admin: Shell) -> None:
    ended = admin.run("webhooks", "add", "--event", "session.sideways", "gopher://x")
    assert ended.status == FAILED
    assert "gatewayctl: URL: must begin with http" in ended.err
    assert "gatewayctl: --event: must be one of" in ended.err
    for command in (("test",), ("deliveries",), ("remove", "--yes")):
        ended = admin.run("webhooks", *command, "no/../such")
        assert ended == (FAILED, "", "gatewayctl: Not Found\n")


# users


@pytest.fixture
def clean(admin: Shell) -> Iterator[Shell]:
    """Nothing is staged, before and after."""
    assert staged(admin.api) == ""
    yield admin
    admin.api.send("POST", "/system/config/discard")


def test_a_user_is_added_changed_logged_out_and_removed(clean: Shell) -> None:
    file = clean.write("word", "watchword\n")
    add = ("users", "add", "carol", "--role", "operator", "--password-file", file, "--commit")
    clean.done(*add)
    assert clean.run(*add) == (FAILED, "", "gatewayctl: there is a user carol already\n")
    assert {"username": "carol", "role": "operator"}.items() <= clean.json("users", "list")[-1].items()
    token = clean.api.log_in("carol", "watchword").json()["access_token"]
    assert clean.done("users", "logout", "carol") == "Ended all tokens of carol\n"
    assert clean.api.send("GET", "/subscribers/summary", token=token).status_code == 401
    clean.done("users", "role", "carol", "--role", "admin", "--commit")
    assert clean.json("users", "list")[-1]["role"] == "admin"
    clean.done("users", "password", "carol", "--password-file", "-", "--commit", feed="another\n")
    assert clean.api.log_in("carol", "another").status_code == 200
    assert clean.run("users", "remove", "carol") == NO_TERMINAL
    clean.done("users", "remove", "carol", "--yes", "--commit")
    assert "carol" not in clean.done("users", "list")
    absent = clean.run("users", "role", "carol", "--role", "admin")
    assert absent == (FAILED, "", "gatewayctl: there is no user carol\n")
    # Beside the changes of others, it is staged but not committed with them.
    clean.done("config", "set", "qos.default_up", "7mbit")
    ended = clean.run("users", "role", "operator", "--role", "admin", "--commit")
    assert (ended.status, "the candidate has these changes" in ended.err) == (FAILED, True)
    clean.done("users", "role", "operator", "--role", "admin")
    assert "api.users.operator.role" in staged(clean.api)
