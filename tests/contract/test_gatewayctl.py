"""`gatewayctl` as a process, against a running gateway: logins, contexts, lists and formats."""

import csv
import io
import json
import os
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from datetime import UTC, datetime

import jwt
import pytest

from gateway_api.version import VERSION
from tests.support.by_api import sessions, with_a_name
from tests.support.receivers import Receiver, answer
from tests.support.running_gateway import Gateway, Reply
from tests.support.shell import Shell
from tests.support.stack import wait_for

pytestmark = pytest.mark.slow

FAILED, USAGE, AWAY, DENIED = 1, 2, 3, 4


# All of it


def test_the_version_is_that_of_the_package(shell: Shell) -> None:
    assert shell.done("--version") == f"gatewayctl {VERSION}\n"


@pytest.mark.parametrize(
    "arguments",
    [("nonsense",), ("--nonsense",), ("subscribers", "show"), ("-o", "xml", "health")],
    ids=" ".join,
)
def test_wrong_arguments_are_refused_with_the_usage(shell: Shell, arguments: tuple[str, ...]) -> None:
    ended = shell.run(*arguments)
    assert (ended.status, ended.out) == (USAGE, "")
    assert ended.err.startswith("Usage: gatewayctl ")


def test_an_option_without_its_value_is_named(shell: Shell) -> None:
    ended = shell.run("subscribers", "list", "--sort")
    assert (ended.status, ended.out) == (USAGE, "")
    assert "'--sort' requires an argument" in ended.err


def test_a_gateway_that_does_not_answer_is_told_from_one_that_refuses(shell: Shell) -> None:
    shell.environment["GATEWAY_URL"] = "https://localhost:1"
    ended = shell.run("subscribers", "list")
    assert (ended.status, ended.out) == (AWAY, "")
    assert re.fullmatch(
        r"gatewayctl: no response from a gateway at https://localhost:1: .*[Cc]onnection refused\n"
        r"gatewayctl: on the gateway, look with: "
        r"systemctl status gateway-api, and journalctl -u gateway-api\n",
        ended.err,
    )


def test_a_disk_that_is_too_full_for_the_output_is_named(shell: Shell) -> None:
    ended = shell.run("version", wrap=("sh", "-c", 'exec "$@" >/dev/full', "sh"))
    assert ended == (USAGE, "", "gatewayctl: cannot write the output: No space left on device\n")


def test_a_reader_that_has_seen_enough_is_no_failure(shell: Shell) -> None:
    ended = shell.run("version", wrap=("bash", "-o", "pipefail", "-c", '"$@" | true', "bash"))
    assert ended == (0, "", "")


def test_the_gateway_itself_needs_no_other_certificate(shell: Shell) -> None:
    shell.environment["GATEWAY_API_CERTIFICATE"] = shell.environment.pop("GATEWAY_CA")
    assert shell.json("health")["product"]


def test_a_certificate_that_nobody_vouches_for_is_not_trusted(shell: Shell) -> None:
    del shell.environment["GATEWAY_CA"]
    ended = shell.run("health")
    assert ended.status == AWAY
    assert "certificate verify failed" in ended.err


def test_a_ca_certificate_that_cannot_be_read_is_named(shell: Shell) -> None:
    shell.environment["GATEWAY_CA"] = "/no/such/file"
    ended = shell.run("health")
    assert ended.status == AWAY
    assert "/no/such/file" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("url", ["https://[::1", "https://bng1..example.net:8443"])
def test_a_url_that_no_gateway_can_have_is_refused(shell: Shell, url: str) -> None:
    shell.environment["GATEWAY_URL"] = url
    reason = f"gatewayctl: the URL of a gateway must be https://HOST:PORT, not {url!r}\n"
    assert shell.run("health") == (USAGE, "", reason)


def test_a_word_in_another_encoding_is_named(operator: Shell) -> None:
    # As a terminal with ISO 8859-1 sends it.
    ended = operator.run("subscribers", "find", os.fsdecode(b"m\xfcller"))
    assert ended == (USAGE, "", "gatewayctl: 'm\\udcfcller' is not UTF-8\n")


def test_nothing_is_sent_without_tls(shell: Shell) -> None:
    with Receiver() as receiver:
        shell.environment["GATEWAY_URL"] = receiver.url
        ended = shell.run("health")
        assert ended.status == USAGE
        assert "must be https://" in ended.err
        assert receiver.received == []


def test_a_core_that_is_away_is_told_with_the_id_of_the_request(gateway: Gateway, operator: Shell) -> None:
    with gateway.without_core():
        ended = operator.run("subscribers", "list")
    assert ended.status == AWAY
    assert re.fullmatch(r"gatewayctl: Core daemon unreachable \(request \S+\)\n", ended.err)


def test_a_gateway_that_is_busy_is_told_with_the_time_of_the_next_attempt(
    gateway: Gateway, shell: Shell
) -> None:
    busy = answer(503, "Retry-After: 7", body=b'{"status": "error", "message": "Too many searches"}')
    with Receiver(busy, tls=gateway.tls()) as receiver:
        shell.environment["GATEWAY_URL"] = f"https://localhost:{receiver.port}"
        ended = shell.run("health")
    assert ended.status == AWAY
    assert ended.err.endswith("gatewayctl: try again in 7 s\n")


def test_an_answer_that_is_no_gateways_is_no_success(gateway: Gateway, shell: Shell) -> None:
    page = answer(200, "Content-Type: text/html", body=b"Welcome")
    with Receiver(page, tls=gateway.tls()) as receiver:
        shell.environment["GATEWAY_URL"] = f"https://localhost:{receiver.port}"
        ended = shell.run("health")
    assert (ended.status, ended.out) == (AWAY, "")
    assert "is not from a gateway" in ended.err


def test_what_the_gateway_says_cannot_move_the_cursor(gateway: Gateway, shell: Shell) -> None:
    evil = "\x1b[2Jeve\r\n\x9b31m\u202e\u2028"
    session = {"id": 1, "type": evil, "username": evil, "ip_address": evil, "interface": evil}
    more = {"rate_down": 1, "rate_up": 1, "started_at": 1}
    page = {"sessions": [session | more], "next_cursor": None}
    with gateway.replaced(lambda *_: (200, {"status": "ok", "data": page})) as url:
        shell.environment["GATEWAY_URL"] = url
        shown = shell.done("subscribers", "list")
    with gateway.replaced(lambda *_: (400, {"status": "error", "message": evil})) as url:
        shell.environment["GATEWAY_URL"] = url
        said = shell.run("subscribers", "list").err
    escaped = r"\u001b[2Jeve\u000d\u000a\u009b31m\u202e\u2028"
    assert escaped in shown
    assert escaped in said
    for text in (shown, said):
        assert all(letter.isprintable() or letter == "\n" for letter in text)


# login


def test_contexts_are_for_the_eyes_of_their_owner(shell: Shell) -> None:
    shell.log_in("operator")
    assert shell.contexts.stat().st_mode & 0o777 == 0o600
    assert shell.contexts.parent.stat().st_mode & 0o777 == 0o700
    assert shell.api.send("GET", "/subscribers/summary", token=shell.token).status_code == 200


def test_a_token_of_one_gateway_is_not_shown_to_another(gateway: Gateway, operator: Shell) -> None:
    with Receiver(answer(200), tls=gateway.tls()) as receiver:
        operator.environment["GATEWAY_URL"] = f"https://localhost:{receiver.port}"
        operator.run("subscribers", "list")
        (request,) = receiver.received
    assert "authorization" not in {name.lower() for name, _ in request.headers}


def test_a_password_is_asked_for_without_an_echo(shell: Shell) -> None:
    password = shell.api.environment["OPERATOR_PASSWORD"]
    terminal = shell.at_terminal("login")
    terminal.expect(f"Username for {shell.api.url}: ")
    terminal.type("operator\n")
    terminal.expect("Password of operator: ")
    terminal.type(f"{password}\n")
    assert terminal.end() == 0
    assert "logged in to" in terminal.shown
    assert password not in terminal.shown
    shell.done("subscribers", "summary")


def test_a_password_may_come_by_standard_input(shell: Shell) -> None:
    # As an editor of Windows saves it.
    feed = "\ufeff" + shell.api.environment["OPERATOR_PASSWORD"] + "\r\n"
    shell.done("login", "--user", "operator", "--password-file", "-", feed=feed)
    shell.done("subscribers", "summary")


def test_a_wrong_password_is_refused_and_the_old_token_stays(operator: Shell) -> None:
    before = operator.token
    ended = operator.run("login", "--user", "operator", "--password-file", "-", feed="wrong")
    assert (ended.status, ended.err) == (DENIED, "gatewayctl: Incorrect username or password\n")
    assert operator.token == before


@pytest.mark.parametrize("feed", ["", "\n"])
def test_no_password_is_no_login(shell: Shell, feed: str) -> None:
    ended = shell.run("login", "--user", "operator", "--password-file", "-", feed=feed)
    assert (ended.status, ended.err) == (USAGE, "gatewayctl: no password in -\n")


def test_without_a_terminal_a_password_cannot_be_asked_for(shell: Shell) -> None:
    ended = shell.run("login", "--user", "operator")
    assert ended.status == USAGE
    assert "no terminal" in ended.err


def test_a_command_without_a_login_says_how_to_log_in(shell: Shell) -> None:
    ended = shell.run("subscribers", "list")
    assert ended.status == DENIED
    assert "log in with: gatewayctl login" in ended.err


def test_health_needs_no_login(shell: Shell) -> None:
    assert shell.json("health")["active_sessions"] > 2000


def test_a_logout_makes_the_token_worthless(leaver: Shell) -> None:
    token = leaver.token
    assert "logged out" in leaver.done("logout")
    assert leaver.token is None
    assert leaver.api.send("GET", "/subscribers/summary", token=token).status_code == 401
    assert leaver.run("logout").status == DENIED


def test_a_logout_can_end_all_tokens_of_the_user(leaver: Shell) -> None:
    another = leaver.api.new_token("operator")
    leaver.done("logout", "--everywhere")
    leaver.api.forget_tokens()
    assert leaver.api.send("GET", "/subscribers/summary", token=another).status_code == 401


def test_a_token_that_holds_is_not_renewed_without_need(operator: Shell) -> None:
    before = operator.token
    assert "still logged in" in operator.done("login", "--if-needed")
    assert operator.token == before


def _revoke(_: Gateway, shell: Shell) -> None:
    assert shell.api.send("POST", "/auth/logout", token=shell.token).status_code == 200


def _expire(gateway: Gateway, shell: Shell) -> None:
    secret = (gateway.state / "secret").read_text()
    claims = jwt.decode(shell.token, options={"verify_signature": False})
    claims |= {"iat": claims["iat"] - 7200, "exp": claims["iat"] - 3600}
    shell.has(jwt.encode(claims, secret, "HS256"), username="operator")


@pytest.mark.parametrize("spoil", [_revoke, _expire])
def test_a_token_that_holds_no_more_is_refused(
    gateway: Gateway, leaver: Shell, spoil: Callable[[Gateway, Shell], None]
) -> None:
    spoil(gateway, leaver)
    ended = leaver.run("subscribers", "list")
    assert ended.status == DENIED
    assert "Could not validate credentials" in ended.err


def of_claims(claims: str) -> str:
    return f"e30.{urlsafe_b64encode(claims.encode()).decode().rstrip('=')}.c2ln"


@pytest.mark.parametrize(
    ("token", "sentence"),
    [
        (of_claims('{"exp": 100}'), "the token expired at 1970-01-01 00:01:40+00:00"),
        (of_claims("{}"), "the token does not say when it expires"),
        (of_claims('{"exp": 1%s}' % ("0" * 400)), "the token does not expire at a time: its exp is not one"),
        ("rubbish\r\nX-Evil: 1", "the token is not a JSON Web Token (RFC 7519)"),
        ("\u20ac.\u20ac.\u20ac", "the token is not a JSON Web Token (RFC 7519)"),
        ("", "there is no token: nobody is logged in"),
    ],
    ids=["expired", "endless", "huge", "lines", "euros", "none"],
)
def test_why_a_token_is_not_valid_is_said(shell: Shell, token: str, sentence: str) -> None:
    shell.has(token, username="operator")
    ended = shell.run("subscribers", "summary")
    assert (ended.status, ended.out) == (DENIED, "")
    said = ["Could not validate credentials", sentence, "log in with: gatewayctl login"]
    assert ended.err == "".join(f"gatewayctl: {each}\n" for each in said)
    (row,) = shell.json("contexts", "list")
    assert (row["logged_in"], row["reason"]) == (False, sentence)
    assert sentence in shell.done("contexts", "list")
    assert shell.run("health").status == 0


def test_a_login_that_gives_no_token_is_no_login(gateway: Gateway, shell: Shell) -> None:
    for document in ({"access_token": 7}, {"access_token": "x\ny"}, {"token": "x"}):
        with gateway.replaced(lambda *_, held=document: (200, held)) as url:  # type: ignore[misc]
            shell.environment["GATEWAY_URL"] = url
            ended = shell.run("login", "--user", "operator", "--password-file", "-", feed="secret")
        assert (ended.status, ended.out) == (AWAY, "")
        assert "is not from a gateway" in ended.err


def test_a_context_whose_token_is_no_text_is_no_traceback(shell: Shell) -> None:
    shell.has("x")
    shell.contexts.write_text(shell.contexts.read_text().replace('"token": "x"', '"token": 7'))
    ended = shell.run("subscribers", "summary")
    assert ended.status == USAGE
    assert "token of localhost:" in ended.err


def test_an_expired_token_is_renewed_from_the_password_file(gateway: Gateway, leaver: Shell) -> None:
    _expire(gateway, leaver)
    leaver.environment |= {
        "GATEWAY_USER": "operator",
        "GATEWAY_PASSWORD_FILE": leaver.password_file("operator"),
    }
    assert "USERNAME" in leaver.done("subscribers", "list", "--username", "nobody")
    assert leaver.api.send("GET", "/subscribers/summary", token=leaver.token).status_code == 200


def test_a_token_that_holds_no_more_is_renewed_at_a_terminal(gateway: Gateway, leaver: Shell) -> None:
    _revoke(gateway, leaver)
    terminal = leaver.at_terminal("subscribers", "list", "--username", "nobody")
    terminal.expect("Password of operator: ")
    terminal.type(leaver.api.environment["OPERATOR_PASSWORD"] + "\n")
    assert terminal.end() == 0
    assert "USERNAME" in terminal.shown


# contexts


def test_a_context_is_named_and_used_without_the_environment(shell: Shell) -> None:
    given = ("--user", "admin", "--password-file", shell.password_file("admin"))
    shell.done("--context", "lab", "login", *given)
    del shell.environment["GATEWAY_URL"], shell.environment["GATEWAY_CA"]
    assert shell.json("subscribers", "summary")["total"] > 2000
    assert shell.json("subscribers", "summary", "--context", "lab")["total"] > 2000
    (row,) = shell.json("contexts", "list")
    assert (row["name"], row["current"], row["username"]) == ("lab", True, "admin")
    assert shell.token not in shell.done("contexts", "list")


def test_an_unknown_context_is_named_with_the_known_ones(operator: Shell) -> None:
    ended = operator.run("--context", "nowhere", "health")
    assert ended.status == USAGE
    known = operator.api.url.removeprefix("https://")
    assert ended.err == f"gatewayctl: there is no context 'nowhere'; known contexts: {known}\n"


def test_all_gateways_are_asked_and_each_row_has_its_context(operator: Shell) -> None:
    operator.has(operator.token, "second")
    found = operator.json("--all", "subscribers", "list", "--limit", "2")
    names = {operator.api.url.removeprefix("https://"), "second"}
    assert [record["context"] in names for record in found] == [True] * 4
    head, *rows = operator.done("subscribers", "list", "--limit", "1", "--all").splitlines()
    assert head.split()[0] == "CONTEXT"
    assert {row.split()[0] for row in rows} == names


def test_a_gateway_that_is_away_does_not_hide_the_others(operator: Shell) -> None:
    operator.has("", "away", url="https://localhost:1")
    ended = operator.run("--all", "health")
    assert ended.status == AWAY
    assert operator.api.url.removeprefix("https://") in ended.out
    assert "gatewayctl: away: no response from a gateway" in ended.err


def test_a_change_is_of_one_gateway(admin: Shell) -> None:
    ended = admin.run("--all", "subscribers", "disconnect", "1")
    assert ended.status == USAGE
    assert "one gateway" in ended.err


def test_contexts_are_chosen_and_removed(operator: Shell) -> None:
    operator.has(operator.token, "second")
    first = operator.api.url.removeprefix("https://")
    operator.done("contexts", "use", first)
    assert {row["name"]: row["current"] for row in operator.json("contexts", "list")} == {
        first: True,
        "second": False,
    }
    operator.done("contexts", "remove", "second")
    assert [row["name"] for row in operator.json("contexts", "list")] == [first]


def test_contexts_that_cannot_be_read_are_no_traceback(shell: Shell) -> None:
    shell.has("")
    shell.contexts.write_text("{")
    ended = shell.run("health")
    assert ended.status == USAGE
    assert ended.err.startswith("gatewayctl: cannot read the contexts in ")


def test_a_renewed_token_does_not_change_the_current_context(leaver: Shell) -> None:
    first = leaver.api.url.removeprefix("https://")
    leaver.has("expired", "second", username="operator")
    leaver.done("contexts", "use", first)
    leaver.environment["GATEWAY_PASSWORD_FILE"] = leaver.password_file("operator")
    leaver.done("--context", "second", "subscribers", "summary")
    assert {row["name"]: row["current"] for row in leaver.json("contexts", "list")} == {
        first: True,
        "second": False,
    }


# subscribers


def test_all_pages_are_listed(operator: Shell) -> None:
    listed = operator.done("subscribers", "list").splitlines()[1:]
    assert [int(line.split()[0]) for line in listed] == [one["id"] for one in sessions(operator.api)]
    assert len(listed) > 2000


def test_columns_are_aligned(operator: Shell) -> None:
    head, *rows = operator.done("subscribers", "list", "--limit", "50").splitlines()
    for name in ("USERNAME", "ADDRESS", "INTERFACE", "DOWN", "STARTED"):
        at = head.index(name)
        assert {row[at - 2 : at] for row in rows} == {"  "}
        assert all(row[at] != " " for row in rows)


def test_a_limit_is_the_most_of_all_pages(operator: Shell) -> None:
    assert len(operator.json("subscribers", "list", "--limit", "2001")) == 2001


def test_filters_must_all_hold(operator: Shell) -> None:
    wanted = with_a_name(operator.api, 1)[0]
    arguments = ("--type", "pppoe", "--username", wanted["username"], "--ip", wanted["ip_address"])
    (row,) = operator.done("subscribers", "list", *arguments).splitlines()[1:]
    assert row.split()[:5] == [
        str(wanted["id"]),
        "PPPoE",
        wanted["username"],
        wanted["ip_address"],
        wanted["interface"],
    ]


def test_a_mac_address_is_taken_in_any_spelling(operator: Shell) -> None:
    (wanted,) = with_a_name(operator.api, 1)
    dashes = wanted["mac_address"].replace(":", "-")
    for found in (
        operator.json("subscribers", "list", "--mac", dashes),
        operator.json("subscribers", "find", dashes),
        [operator.json("subscribers", "show", dashes)],
    ):
        assert [one["id"] for one in found] == [wanted["id"]]


def test_a_name_with_a_space_and_an_ampersand_is_a_name(operator: Shell) -> None:
    assert operator.json("subscribers", "list", "--username", "no & body=1") == []


def test_the_order_is_the_one_asked_for(operator: Shell) -> None:
    ids = [one["id"] for one in operator.json("subscribers", "list", "--sort", "-id", "--limit", "20")]
    assert ids == sorted(ids, reverse=True)


def test_a_filter_that_the_gateway_refuses_is_named_with_its_rule(operator: Shell) -> None:
    ended = operator.run("subscribers", "list", "--ip", "somewhere")
    assert ended.status == FAILED
    assert ended.err.startswith("gatewayctl: --ip: must be an IP address")


def test_nobody_found_is_no_success(operator: Shell) -> None:
    ended = operator.run("subscribers", "find", "nobody-like-this")
    assert (ended.status, ended.out) == (FAILED, "")
    assert ended.err == "gatewayctl: no session matches 'nobody-like-this'\n"


@pytest.mark.parametrize("field", ["id", "username", "ip_address", "mac_address"])
def test_a_session_is_shown_by_any_of_its_names(operator: Shell, field: str) -> None:
    (wanted,) = with_a_name(operator.api, 1)
    assert operator.json("subscribers", "show", str(wanted[field]))["id"] == wanted["id"]


def test_a_part_of_a_name_is_no_target(operator: Shell) -> None:
    (wanted,) = with_a_name(operator.api, 1)
    ended = operator.run("subscribers", "show", wanted["username"][:-1])
    assert ended.status == FAILED
    assert "no session of" in ended.err


def test_a_session_that_does_not_exist_is_refused(operator: Shell) -> None:
    ended = operator.run("subscribers", "show", "999999999")
    said = "no session of 999999999; gatewayctl subscribers find searches for parts"
    assert ended == (FAILED, "", f"gatewayctl: {said}\n")


@pytest.mark.parametrize(("ipv6", "address"), [("2001:db8::2", "2001:db8::2"), (None, "-")])
def test_a_session_without_ipv4_is_listed(
    gateway: Gateway, shell: Shell, ipv6: str | None, address: str
) -> None:
    session = {"id": 1, "type": "PPPoE", "username": "eve", "ip_address": None, "interface": "ppp0"}
    more = {"ipv6_address": ipv6, "rate_down": 1000, "rate_up": 1000, "started_at": 1}
    page = {"sessions": [session | more], "next_cursor": None}
    with gateway.replaced(lambda *_: (200, {"status": "ok", "data": page})) as url:
        shell.environment["GATEWAY_URL"] = url
        _, line = shell.done("subscribers", "list").splitlines()
    assert line.split()[:5] == ["1", "PPPoE", "eve", address, "ppp0"]


# The network, and the audit log


@pytest.mark.parametrize(
    ("command", "path", "key"),
    [
        ("interfaces", "/interfaces", "interfaces"),
        ("vlans", "/interfaces/vlans", "vlans"),
        ("qos", "/qos", "sessions"),
        ("routes", "/routing/routes", "routes"),
        ("cgnat", "/cgnat/sessions", "sessions"),
        ("demux", "/demux/state", "vlans"),
        ("faults", "/system/faults", "faults"),
    ],
)
def test_a_list_of_the_network_is_that_of_the_api(operator: Shell, command: str, path: str, key: str) -> None:
    known = operator.api.get(path, params={"limit": 5})[key]
    names = ["name", "session_id", "dst", "id"]
    found = operator.json(command, "--limit", "5")
    for name in names:
        assert [one.get(name) for one in found] == [one.get(name) for one in known]
    operator.done(command, "--limit", "5")


def test_a_list_of_the_network_is_filtered_and_sorted(operator: Shell) -> None:
    found = operator.json("interfaces", "--filter", "type=trunk", "--sort", "-name")
    assert [one["name"] for one in found] == ["trunk1", "trunk0"]
    assert operator.run("interfaces", "--filter", "trunk").status == USAGE


def test_bgp_neighbours_are_listed(operator: Shell) -> None:
    assert {one["address"] for one in operator.json("bgp")} == {"10.255.0.2", "10.255.0.6"}


def test_a_gateway_that_is_well_has_only_well_dependencies(operator: Shell) -> None:
    states = {each["name"]: each["state"] for each in operator.json("health", "--detail")}
    assert states["core"] == "ok"


def test_a_time_in_the_zone_of_the_machine_is_said_with_the_zone(operator: Shell) -> None:
    operator.environment["TZ"] = "Europe/Warsaw"
    ended = operator.run("subscribers", "history", "--at", "2026-03-01 02:13")
    assert ended.err.splitlines()[0] == "gatewayctl: --at is 2026-03-01 02:13:00+01:00"
    assert ended.err.splitlines()[1:] == ["gatewayctl: no session matches"]


@pytest.mark.parametrize(
    "since", ["2h", "1d ago", "yesterday 02:13", "2026-03-01", "2026-03-01T12:00:00Z", "1772366400"]
)
def test_a_window_begins_at_a_time_as_people_write_it(operator: Shell, since: str) -> None:
    assert isinstance(operator.json("subscribers", "flapping", "--since", since), list)


def test_a_time_that_is_none_is_refused_with_the_rule(operator: Shell) -> None:
    ended = operator.run("audit", "--since", "soon")
    assert ended.status == USAGE
    assert "'--since': must be a time, such as 2h, 02:13, yesterday 02:13" in ended.err


def test_flapping_subscribers_are_listed(operator: Shell) -> None:
    known = operator.api.get("/subscribers/flapping")["subscribers"]
    assert operator.json("subscribers", "flapping") == known


def test_a_subscriber_without_a_past_has_no_timeline(operator: Shell) -> None:
    ended = operator.run("subscribers", "timeline", "nobody")
    assert (ended.status, ended.err) == (FAILED, "gatewayctl: the history has no session of nobody\n")


def test_the_audit_log_is_for_admins(operator: Shell) -> None:
    assert operator.run("audit") == (DENIED, "", "gatewayctl: Admin role required\n")


def test_the_audit_log_has_what_was_refused(admin: Shell) -> None:
    admin.api.send("DELETE", "/subscribers/1", "operator")
    found = admin.json("audit", "--user", "operator", "--result", "refused", "--limit", "1")
    assert [one["action"] for one in found] == ["subscribers.disconnect"]


def test_the_audit_log_shows_how_many_requests_without_a_token_were_refused(admin: Shell) -> None:
    for _ in range(3):
        admin.api.send("GET", "/demux/config", None)
    wanted = ("audit", "--route", "/api/v1/demux/config", "--result", "refused")

    def counts() -> list[int]:
        found = [one["count"] for one in admin.json(*wanted)]
        return found if sum(found) == 3 else []

    found = wait_for("the count", counts)
    head, *lines = admin.done(*wanted).splitlines()
    assert [int(line[head.index("COUNT") :].split()[0]) for line in lines] == found


# Formats


def test_json_is_the_record_of_the_api(operator: Shell) -> None:
    (wanted,) = with_a_name(operator.api, 1)
    named = ("subscribers", "list", "--username", wanted["username"])
    assert json.loads(operator.done(*named, "-o", "json")) == [wanted]


def test_csv_has_all_fields_and_a_line_of_names(operator: Shell) -> None:
    (wanted,) = with_a_name(operator.api, 1)
    text = operator.done("-o", "csv", "subscribers", "list", "--username", wanted["username"])
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    assert row.keys() == wanted.keys()
    assert (row["username"], row["rate_down"]) == (wanted["username"], str(wanted["rate_down"]))
    assert json.loads(row["delegated_prefixes"]) == wanted["delegated_prefixes"]


def test_jsonpath_selects_values_one_a_line(operator: Shell) -> None:
    listed = ("subscribers", "list", "--type", "pppoe", "--limit", "3")
    found = operator.done("-o", "jsonpath=$[*].username", *listed)
    assert found.splitlines() == [one["username"] for one in with_a_name(operator.api, 3)]


def test_a_jsonpath_that_is_none_is_refused(shell: Shell) -> None:
    ended = shell.run("-o", "jsonpath=$[", "health")
    assert ended.status == USAGE
    assert "is not a JSONPath expression" in ended.err


def test_times_have_their_offset(operator: Shell) -> None:
    (wanted,) = with_a_name(operator.api, 1)
    shown = operator.done("subscribers", "show", str(wanted["id"]))
    at = datetime.fromtimestamp(wanted["started_at"], UTC).isoformat(sep=" ")
    assert re.search(rf"^Started +{re.escape(at)}$", shown, re.MULTILINE)


def test_colours_are_for_a_terminal_that_wants_them(operator: Shell) -> None:
    terminal = operator.at_terminal("subscribers", "summary")
    assert terminal.end() == 0
    assert "\x1b[1m" in terminal.shown
    assert "\x1b" not in operator.done("subscribers", "summary")
    operator.environment["NO_COLOR"] = "1"
    plain = operator.at_terminal("subscribers", "summary")
    assert plain.end() == 0
    assert "\x1b" not in plain.shown


def test_a_reader_that_has_seen_enough_is_no_error(operator: Shell) -> None:
    wrap = ("sh", "-c", '"$@" | head -n 1', "sh")
    ended = operator.run("subscribers", "list", wrap=wrap)
    assert (ended.status, ended.err) == (0, "")
    assert len(ended.out.splitlines()) == 1


# Completion


def completed(shell: Shell, line: str) -> list[str]:
    """The words that bash would offer for the last word of a line."""
    words = line.split(" ")
    shell.environment |= {
        "_GATEWAYCTL_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    return [each.partition(",")[2] for each in shell.done().splitlines() if each]


def test_commands_and_options_are_completed(shell: Shell) -> None:
    assert completed(shell, "gatewayctl sub") == ["subscribers"]
    assert "--username" in completed(shell, "gatewayctl subscribers list --user")


def test_real_session_ids_are_completed(operator: Shell) -> None:
    ids = [str(one["id"]) for one in sessions(operator.api, limit="1000")]
    assert completed(operator, "gatewayctl subscribers show 12") == [id for id in ids if id.startswith("12")]


def test_usernames_are_completed(operator: Shell) -> None:
    (wanted,) = with_a_name(operator.api, 1)
    assert completed(operator, f"gatewayctl subscribers show {wanted['username'][:16]}") == [
        wanted["username"]
    ]


def test_a_target_with_its_kind_is_completed(operator: Shell) -> None:
    (wanted,) = with_a_name(operator.api, 1)
    fields = {"id": "id", "user": "username", "ip": "ip_address", "mac": "mac_address"}
    for kind, field in fields.items():
        target = f"{kind}:{wanted[field]}"
        begin = target[:-1] if kind != "id" else target
        assert target in completed(operator, f"gatewayctl subscribers show {begin}")


def test_a_completed_username_is_text_for_bash(gateway: Gateway, shell: Shell) -> None:
    name = "alice; touch fallen; echo \"$(pwd)\" '*' *"

    def reply(method: str, path: str) -> Reply:
        return 200, {"status": "ok", "data": {"sessions": [{"id": 7, "username": name}]}}

    script = (
        'eval "$("$0" completion bash 2>/dev/null)"; COMP_WORDS=(gatewayctl "$@") COMP_CWORD=$#; '
        '_gatewayctl_completion "$0"; eval "printf %s ${COMPREPLY[*]}"'
    )
    with gateway.replaced(reply) as url:
        shell.environment["GATEWAY_URL"] = url
        ended = shell.run("subscribers", "show", "ali", wrap=("bash", "-c", script))
    assert not (shell.folder / "fallen").exists()
    assert ended == (0, name, "")


def test_configuration_paths_are_completed(operator: Shell) -> None:
    assert completed(operator, "gatewayctl config set qos.default_d") == ["qos.default_down"]


def test_a_path_that_the_running_configuration_leaves_out_is_completed_to_set_it(operator: Shell) -> None:
    assert "history" not in operator.api.get("/system/config")
    assert completed(operator, "gatewayctl config set history.d") == ["history.days"]
    assert completed(operator, "gatewayctl config show history.d") == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gatewayctl vlans --sort se", ["session_count"]),
        ("gatewayctl vlans --filter tr", ["trunk="]),
        ("gatewayctl demux --filter st", ["state=active", "state=idle"]),
        ("gatewayctl subscribers list --sort us", ["username"]),
        ("gatewayctl subscribers top --sort d", ["down"]),
        ("gatewayctl subscribers rate --where int", ["interface="]),
        ("gatewayctl subscribers disconnect --where ty", ["type=pppoe", "type=dhcp"]),
    ],
)
def test_fields_are_completed(shell: Shell, line: str, words: list[str]) -> None:
    assert completed(shell, line) == words


def test_reasons_and_actions_are_those_of_the_records(gateway: Gateway, shell: Shell) -> None:
    def reply(method: str, path: str) -> Reply:
        if "/audit" in path:
            return 200, {
                "status": "ok",
                "data": {"records": [{"action": "login.log_in"}, {"action": "jobs.cancel"}]},
            }
        return 200, {"status": "ok", "data": {"sessions": [{"reason": "lost_carrier"}, {"reason": None}]}}

    with gateway.replaced(reply) as url:
        shell.environment["GATEWAY_URL"] = url
        assert completed(shell, "gatewayctl audit --action log") == ["login.log_in"]
        assert completed(shell, "gatewayctl subscribers history --reason lo") == ["lost_carrier"]


def test_a_search_without_a_session_shows_the_past(gateway: Gateway, shell: Shell) -> None:
    named = {"username": "alice", "mac_address": "02:00:00:00:00:07", "access_interface": "trunk0.7"}
    ended = {**named, "ip_address": "100.64.0.7", "ended_at": 1772331180, "reason": "lost_carrier"}
    failed = {**named, "last_at": 1772331240, "reason": "rejected", "attempts": 12}

    def reply(method: str, path: str) -> Reply:
        if "/history" in path:
            return 200, {"status": "ok", "data": {"sessions": [ended]}}
        if "/failed-sign-ons" in path:
            return 200, {"status": "ok", "data": {"failures": [failed]}}
        return 200, {"status": "ok", "data": {"sessions": [], "next_cursor": None}}

    with gateway.replaced(reply) as url:
        shell.environment["GATEWAY_URL"] = url
        found = shell.run("subscribers", "find", "ali")
    assert (found.status, found.out) == (FAILED, "")
    assert found.err.splitlines() == [
        "gatewayctl: no session matches 'ali'",
        "gatewayctl: last seen 2026-03-01 02:13:00+00:00, lost_carrier: "
        "alice, 100.64.0.7, 02:00:00:00:00:07, trunk0.7",
        "gatewayctl: failed to sign on 2026-03-01 02:14:00+00:00, rejected, 12 times: "
        "alice, 02:00:00:00:00:07, trunk0.7",
    ]


def test_nothing_is_completed_without_a_gateway(shell: Shell) -> None:
    shell.environment["GATEWAY_URL"] = "https://localhost:1"
    assert completed(shell, "gatewayctl subscribers show 1") == []
