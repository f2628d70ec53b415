"""`gatewayctl` against a running gateway: logins, contexts, lists, formats and completion.

Commands run in the test's process; what only a process of its own shows has one: `run_process`.
"""

import csv
import io
import json
import os
import re
from datetime import UTC, datetime

import jwt
import pytest

from gateway_contract.version import VERSION
from tests.support.by_api import sessions, with_a_name
from tests.support.receivers import Receiver, answer
from tests.support.running_gateway import Gateway, Reply
from tests.support.shell import Shell

FAILED, USAGE, AWAY, DENIED = 1, 2, 3, 4
ONE_FAILED = 11
NOBODY_ANSWERS = "https://localhost:1"


def own_name(shell: Shell) -> str:
    """The name of the context that a login makes."""
    return shell.api.url.removeprefix("https://")


# All of it


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("nonsense",), "No such command 'nonsense'"),
        (("--nonsense",), "No such option"),
        (("subscribers", "show"), "Missing argument 'TARGET'"),
        (("-o", "xml", "health"), "must be "),
        (("-o", "jsonpath=$[", "health"), "is not a JSONPath expression"),
        (("subscribers", "list", "--sort"), "'--sort' requires an argument"),
        (("--all", "subscribers", "disconnect", "1"), "it is for one gateway"),
        (("audit", "--since", "soon"), "'--since': must be a time, such as 2h, 02:13, yesterday 02:13"),
        (("interfaces", "--filter", "trunk"), "must be FIELD=VALUE"),
        # As a terminal with ISO 8859-1 sends it.
        (("subscribers", "find", os.fsdecode(b"m\xfcller")), "'m\\udcfcller' is not UTF-8"),
    ],
    ids=lambda given: ascii(" ".join(given)) if isinstance(given, tuple) else "",
)
def test_wrong_arguments_are_refused_with_the_reason(
    operator: Shell, arguments: tuple[str, ...], reason: str
) -> None:
    ended = operator.run(*arguments)
    assert (ended.status, ended.out) == (USAGE, "")
    assert reason in ended.err


def test_a_process_writes_its_output_or_says_that_the_disk_is_full(shell: Shell) -> None:
    assert shell.run_process("--version") == (0, f"gatewayctl {VERSION}\n", "")
    piped = shell.run_process("version", wrap=("sh", "-c", '{ "$@"; echo $? >&2; } | true', "sh"))
    assert (piped.out, piped.err) == ("", "0\n")
    full = shell.run_process("version", wrap=("sh", "-c", 'ulimit -f 0; exec "$@" >full', "sh"))
    assert full == (USAGE, "", "gatewayctl: cannot write the output: File too large\n")


@pytest.mark.parametrize(
    ("variable", "value", "status", "reason"),
    [
        (
            "GATEWAY_URL",
            NOBODY_ANSWERS,
            AWAY,
            r"no response from a gateway at https://localhost:1: .*[Cc]onnection refused\n"
            r"gatewayctl: on the gateway, look with: systemctl status gateway-api, and journalctl .*\n",
        ),
        (
            "GATEWAY_URL",
            "http://localhost:1",
            USAGE,
            r"the URL of a gateway must be https://HOST:PORT, .*",
        ),
        ("GATEWAY_CA", "/no/such/file", AWAY, ".*/no/such/file"),
        ("GATEWAY_CA", None, AWAY, ".*certificate verify failed"),
    ],
)
def test_a_gateway_that_cannot_be_called_is_named_with_the_reason(
    shell: Shell, variable: str, value: str | None, status: int, reason: str
) -> None:
    del shell.environment[variable]
    shell.environment |= {variable: value} if value else {}
    ended = shell.run("health")
    assert (ended.status, ended.out) == (status, "")
    assert re.match(f"gatewayctl: {reason}", ended.err, re.DOTALL)


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (answer(200, "Content-Type: text/html", body=b"Welcome"), "is not from a gateway"),
        (
            answer(503, "Retry-After: 7", body=b'{"status": "error", "message": "Too many searches"}'),
            "gatewayctl: try again in 7 s\n",
        ),
        (
            answer(500, "X-Request-ID: 7", body=b'{"status": "error", "message": "Core daemon unreachable"}'),
            "gatewayctl: Core daemon unreachable (request 7)\n",
        ),
    ],
    ids=["another program", "busy", "without its core"],
)
def test_a_gateway_that_gives_no_data_is_no_success(
    gateway: Gateway, operator: Shell, sent: bytes, said: str
) -> None:
    with Receiver(sent, tls=gateway.tls()) as receiver:
        operator.environment["GATEWAY_URL"] = f"https://localhost:{receiver.port}"
        ended = operator.run("health")
    assert (ended.status, ended.out) == (AWAY, "")
    assert said in ended.err
    # The token is that of another gateway.
    assert "authorization" not in {name.lower() for name, _ in receiver.received[0].headers}


# login


def test_a_login_keeps_the_token_in_a_file_of_its_owner_alone(shell: Shell) -> None:
    # As an editor of Windows saves it.
    feed = "\ufeff" + shell.api.environment["OPERATOR_PASSWORD"] + "\r\n"
    shell.done("login", "--user", "operator", "--password-file", "-", feed=feed)
    assert shell.contexts.stat().st_mode & 0o777 == 0o600
    assert shell.contexts.parent.stat().st_mode & 0o777 == 0o700
    # The gateway itself needs no other certificate.
    shell.environment["GATEWAY_API_CERTIFICATE"] = shell.environment.pop("GATEWAY_CA")
    shell.done("subscribers", "summary")
    token = shell.token
    assert "still logged in" in shell.done("login", "--if-needed")
    assert shell.token == token


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


@pytest.mark.parametrize(
    ("arguments", "feed", "status", "said"),
    [
        (("--password-file", "-"), "wrong", DENIED, "Incorrect username or password"),
        (("--password-file", "-"), "", USAGE, "no password in -"),
        ((), "", USAGE, "no terminal for a prompt: use --password-file"),
    ],
)
def test_a_login_that_fails_leaves_the_old_token(
    operator: Shell, arguments: tuple[str, ...], feed: str, status: int, said: str
) -> None:
    before = operator.token
    ended = operator.run("login", "--user", "operator", *arguments, feed=feed)
    assert ended == (status, "", f"gatewayctl: {said}\n")
    assert operator.token == before


def test_a_logout_ends_the_token_or_all_tokens_of_the_user(leaver: Shell) -> None:
    def status(token: str) -> int:
        return leaver.api.send("GET", "/subscribers/summary", token=token).status_code

    first, second, third = leaver.token, leaver.api.new_token("operator"), leaver.api.new_token("operator")
    assert "logged out" in leaver.done("logout")
    assert leaver.token is None
    assert (status(first), status(third)) == (401, 200)
    assert leaver.run("logout").status == DENIED
    leaver.has(second, username="operator")
    leaver.done("logout", "--everywhere")
    leaver.api.forget_tokens()
    assert status(third) == 401


def test_a_revoked_token_is_renewed_at_a_terminal_or_from_the_password_file_or_refused(leaver: Shell) -> None:
    def revoke() -> None:
        assert leaver.api.send("POST", "/auth/logout", token=leaver.token).status_code == 200

    revoke()
    command = ("subscribers", "list", "--username", "nobody")
    ended = leaver.run(*command)
    assert (ended.status, ended.out) == (DENIED, "")
    assert ended.err == (
        "gatewayctl: Could not validate credentials\ngatewayctl: log in with: gatewayctl login\n"
    )
    terminal = leaver.at_terminal(*command)
    terminal.expect("Password of operator: ")
    terminal.type(leaver.api.environment["OPERATOR_PASSWORD"] + "\n")
    assert terminal.end() == 0
    assert "USERNAME" in terminal.shown
    revoke()
    leaver.environment["GATEWAY_PASSWORD_FILE"] = leaver.password_file("operator")
    assert "USERNAME" in leaver.done(*command)
    assert leaver.api.send("GET", "/subscribers/summary", token=leaver.token).status_code == 200


def test_an_expired_token_is_refused_with_the_time(gateway: Gateway, leaver: Shell) -> None:
    claims = jwt.decode(leaver.token, options={"verify_signature": False})
    claims |= {"iat": claims["iat"] - 7200, "exp": claims["iat"] - 3600}
    secret = (gateway.state / "secret").read_text()
    leaver.has(jwt.encode(claims, secret, "HS256"), username="operator")
    ended = leaver.run("subscribers", "summary")
    assert ended.status == DENIED
    assert "gatewayctl: the token expired at 20" in ended.err
    (row,) = leaver.json("contexts", "list")
    assert row["logged_in"] is False


# contexts


def test_a_context_is_used_without_the_environment_chosen_and_removed(leaver: Shell) -> None:
    given = ("--user", "operator", "--password-file", leaver.password_file("operator"))
    leaver.done("--context", "lab", "login", *given)
    del leaver.environment["GATEWAY_URL"], leaver.environment["GATEWAY_CA"]
    assert leaver.json("subscribers", "summary")["total"] > 2000
    assert leaver.token not in leaver.done("contexts", "list")
    ended = leaver.run("--context", "nowhere", "health")
    first = own_name(leaver)
    assert ended == (
        USAGE,
        "",
        f"gatewayctl: there is no context 'nowhere'; known contexts: {first}, lab\n",
    )
    leaver.done("contexts", "use", first)
    # A renewed token chooses no context.
    leaver.environment["GATEWAY_CA"] = leaver.api.environment["GATEWAY_CA"]
    leaver.has("expired", "second", username="operator")
    leaver.done("contexts", "use", first)
    leaver.environment["GATEWAY_PASSWORD_FILE"] = leaver.password_file("operator")
    leaver.done("--context", "second", "subscribers", "summary")
    current = {row["name"]: row["current"] for row in leaver.json("contexts", "list")}
    assert current == {first: True, "lab": False, "second": False}
    leaver.done("contexts", "remove", "second")
    assert {row["name"] for row in leaver.json("contexts", "list")} == {first, "lab"}
    text = leaver.contexts.read_text()
    for wrong in ("{", text.replace('"username": "operator"', '"username": 7')):
        leaver.contexts.write_text(wrong)
        ended = leaver.run("health")
        assert ended.status == USAGE
        assert ended.err.startswith("gatewayctl: cannot read the contexts in ")


def test_all_gateways_are_asked_and_one_that_is_away_does_not_hide_the_others(operator: Shell) -> None:
    names = {own_name(operator), "second"}
    operator.has(operator.token, "second")
    command = ("--all", "subscribers", "list", "--limit", "2")
    assert {record["context"] for record in operator.json(*command)} == names
    operator.has("", "away", url=NOBODY_ANSWERS)
    ended = operator.run(*command)
    head, *rows = ended.out.splitlines()
    assert (ended.status, head.split()[0], len(rows)) == (ONE_FAILED, "CONTEXT", 4)
    assert {row.split()[0] for row in rows} == names
    assert "gatewayctl: away: no response from a gateway" in ended.err


# Lists


def test_all_pages_are_listed_in_aligned_columns_and_other_formats(operator: Shell) -> None:
    there = sessions(operator.api)
    head, *rows = operator.done("subscribers", "list").splitlines()
    assert [int(row.split()[0]) for row in rows] == [one["id"] for one in there]
    assert len(rows) > 2000
    at = head.index("ADDRESS")
    assert {row[at - 2 : at] for row in rows} == {"  "}
    assert len(operator.json("subscribers", "list", "--limit", "2001")) == 2001
    listed = ("subscribers", "list", "--type", "pppoe", "--limit", "3")
    wanted = operator.json(*listed)
    (row, *_) = csv.DictReader(io.StringIO(operator.done("-o", "csv", *listed), newline=""))
    assert row.keys() == wanted[0].keys()
    assert (row["username"], row["rate_down"]) == (wanted[0]["username"], str(wanted[0]["rate_down"]))
    assert json.loads(row["delegated_prefixes"]) == wanted[0]["delegated_prefixes"]
    found = operator.done("-o", "jsonpath=$[*].username", *listed)
    assert found.splitlines() == [one["username"] for one in wanted]
    found = operator.json("interfaces", "--filter", "type=trunk", "--sort", "-name")
    assert [one["name"] for one in found] == ["trunk1", "trunk0"]


def test_sessions_are_filtered_sorted_and_found(operator: Shell) -> None:
    (wanted,) = with_a_name(operator.api, 1)
    dashes = wanted["mac_address"].replace(":", "-")
    name = wanted["username"]
    filters = ("--type", "pppoe", "--username", name, "--ip", wanted["ip_address"], "--mac", dashes)
    assert operator.json("subscribers", "list", *filters) == [wanted]
    for text in (dashes, name.partition("@")[0].upper()):
        assert [one["id"] for one in operator.json("subscribers", "find", text)] == [wanted["id"]]
    assert operator.json("subscribers", "list", "--username", "no & body=1") == []
    ids = [one["id"] for one in operator.json("subscribers", "list", "--sort", "-id", "--limit", "20")]
    assert ids == sorted(ids, reverse=True)
    for kind, field in {"id": "id", "user": "username", "ip": "ip_address", "mac": "mac_address"}.items():
        for target in (str(wanted[field]), f"{kind}:{wanted[field]}"):
            assert operator.json("subscribers", "show", target)["id"] == wanted["id"]
    shown = operator.done("subscribers", "show", str(wanted["id"]))
    at = datetime.fromtimestamp(wanted["started_at"], UTC).isoformat(sep=" ")
    assert re.search(rf"(?m)^Started +{re.escape(at)}$", shown)


def test_what_is_not_there_is_told_with_what_was(gateway: Gateway, shell: Shell) -> None:
    named = {"username": "alice", "mac_address": "02:00:00:00:00:07", "access_interface": "trunk0.7"}
    ended = {**named, "ip_address": "100.64.0.7", "ended_at": 1772331180, "reason": "lost_carrier"}
    failed = {**named, "last_at": 1772331240, "reason": "rejected", "attempts": 12}
    session = {"id": 1, "type": "PPPoE", "username": "eve", "ip_address": None, "interface": "ppp0"}
    more = {"ipv6_address": "2001:db8::2", "rate_down": 1000, "rate_up": 1000, "started_at": 1}

    def reply(method: str, path: str) -> Reply:
        if "/history" in path:
            return 200, {"status": "ok", "data": {"sessions": [ended]}}
        if "/failed-sign-ons" in path:
            return 200, {"status": "ok", "data": {"failures": [failed]}}
        found = [] if "search=" in path else [session | more]
        return 200, {"status": "ok", "data": {"sessions": found, "next_cursor": None}}

    with gateway.replaced(reply) as url:
        shell.environment["GATEWAY_URL"] = url
        found = shell.run("subscribers", "find", "ali")
        _, line = shell.done("subscribers", "list").splitlines()
    assert (found.status, found.out) == (FAILED, "")
    assert found.err.splitlines() == [
        "gatewayctl: no session matches 'ali'",
        "gatewayctl: last seen 2026-03-01 02:13:00+00:00, lost_carrier: "
        "alice, 100.64.0.7, 02:00:00:00:00:07, trunk0.7",
        "gatewayctl: failed to sign on 2026-03-01 02:14:00+00:00, rejected, 12 times: "
        "alice, 02:00:00:00:00:07, trunk0.7",
    ]
    # Without an IPv4 address, the other one is shown.
    assert line.split()[:5] == ["1", "PPPoE", "eve", "2001:db8::2", "ppp0"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("list", "--ip", "somewhere"), "--ip: must be an IP address"),
        (("find", "nobody-like-this"), "no session matches 'nobody-like-this'\n"),
        (("show", "999999999"), "no session of 999999999; gatewayctl subscribers find searches for parts\n"),
        (("timeline", "nobody"), "the history has no session of nobody\n"),
    ],
)
def test_what_is_not_found_or_no_filter_is_no_success(
    operator: Shell, arguments: tuple[str, ...], said: str
) -> None:
    ended = operator.run("subscribers", *arguments)
    assert (ended.status, ended.out) == (FAILED, "")
    assert ended.err.startswith(f"gatewayctl: {said}")


def test_a_time_in_the_zone_of_the_machine_is_said_with_the_zone(operator: Shell) -> None:
    operator.environment["TZ"] = "Europe/Warsaw"
    ended = operator.run("subscribers", "history", "--at", "2026-03-01 02:13")
    assert ended.err.splitlines() == [
        "gatewayctl: --at is 2026-03-01 02:13:00+01:00",
        "gatewayctl: no session matches",
    ]


def test_colours_are_for_a_terminal_that_wants_them(operator: Shell) -> None:
    terminal = operator.at_terminal("subscribers", "summary")
    assert terminal.end() == 0
    assert "\x1b[1m" in terminal.shown
    assert "\x1b" not in operator.done("subscribers", "summary")
    operator.environment["NO_COLOR"] = "1"
    plain = operator.at_terminal("subscribers", "summary")
    assert plain.end() == 0
    assert "\x1b" not in plain.shown


# Completion


def completed(shell: Shell, line: str) -> list[str]:
    """The words that bash would offer for the last word of a line."""
    words = f"gatewayctl {line}".split(" ")
    shell.environment |= {
        "_GATEWAYCTL_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    return [each.partition(",")[2] for each in shell.done().splitlines() if each]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("sub", ["subscribers"]),
        ("subscribers list --user", ["--username"]),
        ("vlans --sort se", ["session_count"]),
        ("vlans --filter tr", ["trunk="]),
        ("demux --filter st", ["state=active", "state=idle"]),
        ("subscribers top --sort d", ["down"]),
        ("--on w", ["west"]),
        ("health --on ", ["edge", "west"]),
        ("subscribers disconnect --where ty", ["type=pppoe", "type=dhcp"]),
        ("config set qos.default_d", ["qos.default_down"]),
        # The running configuration leaves it out.
        ("config set history.d", ["history.days"]),
        ("config show history.d", []),
    ],
)
def test_commands_options_fields_and_paths_are_completed(
    operator: Shell, line: str, words: list[str]
) -> None:
    operator.done("contexts", "label", own_name(operator), "--add", "west", "--add", "edge")
    assert completed(operator, line) == words


def test_sessions_are_completed(operator: Shell) -> None:
    (wanted,) = with_a_name(operator.api, 1)
    ids = [str(one["id"]) for one in sessions(operator.api, limit="1000")]
    assert completed(operator, "subscribers show 12") == [id for id in ids if id.startswith("12")]
    name = wanted["username"]
    assert completed(operator, f"subscribers show {name[:16]}") == [name]
    for kind, field in {"user": "username", "ip": "ip_address", "mac": "mac_address"}.items():
        target = f"{kind}:{wanted[field]}"
        assert target in completed(operator, f"subscribers show {target[:-1]}")
    # Actions are those of the records, which are for admins.
    operator.has(operator.api.token("admin"))
    assert "login.log_in" in completed(operator, "audit --action login.l")
    operator.environment["GATEWAY_URL"] = NOBODY_ANSWERS
    assert completed(operator, "subscribers show 1") == []


def test_a_completed_username_is_one_word_for_bash(gateway: Gateway, shell: Shell) -> None:
    name = "alice; touch fallen; echo \"$(pwd)\" '*' *"
    data = {"sessions": [{"id": 7, "username": name}]}
    script = (
        'eval "$("$0" completion bash 2>/dev/null)"; COMP_WORDS=(gatewayctl "$@") COMP_CWORD=$#; '
        '_gatewayctl_completion "$0"; eval "printf %s ${COMPREPLY[*]}"'
    )
    with gateway.replaced(lambda *_: (200, {"status": "ok", "data": data})) as url:
        shell.environment["GATEWAY_URL"] = url
        ended = shell.run_process("subscribers", "show", "ali", wrap=("bash", "-c", script))
    assert not (shell.folder / "fallen").exists()
    assert ended == (0, name, "")
