"""The scripts for operators, against a running gateway: what they do, say and end with."""

import csv
import json
import os
import re
import signal
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import jwt
import pytest
from standardwebhooks import Webhook

from gateway_api.version import VERSION
from tests.support.desk import FOLDER, Desk, Running
from tests.support.faulty_core import SOURCES, STALE, faulty_gateway
from tests.support.receivers import Receiver, answer
from tests.support.sse import wait_for_workers, workers_of
from tests.support.stack import Api, core_of, running_stack, wait_for

pytestmark = pytest.mark.slow

SCRIPTS = sorted(path.name for path in FOLDER.iterdir() if os.access(path, os.X_OK))

FAILED, USAGE, AWAY, DENIED = 1, 2, 3, 4
OK, WARNING, CRITICAL, UNKNOWN = range(4)

#: More than one page of the scripts.
SESSIONS = 2100
SIGNING_SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
HASH = "$2b$04$l6cHqOx.6njlYvAogLLyBucPkVMnGY95sbhMuf9sMa4d1mAUkSSVW"


class Gateway(NamedTuple):
    api: Api
    process: "subprocess.Popen[bytes]"
    state: Path


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    state = tmp_path_factory.mktemp("state")
    with running_stack(state, sessions=SESSIONS) as (api, process):
        yield Gateway(api, process, state)


@pytest.fixture
def desk(gateway: Gateway, tmp_path: Path) -> Desk:
    """Nobody is logged in."""
    return Desk(gateway.api, tmp_path)


@pytest.fixture
def admin(desk: Desk) -> Desk:
    desk.log_in("admin")
    return desk


@pytest.fixture
def operator(desk: Desk) -> Desk:
    desk.log_in("operator")
    return desk


@contextmanager
def away(gateway: Gateway) -> Iterator[None]:
    """The core hangs."""
    core = core_of(gateway.process)
    os.kill(core, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(core, signal.SIGCONT)


Reply = tuple[int, dict[str, Any]]


@contextmanager
def pretender(state: Path, reply: Callable[[str, str], Reply]) -> Iterator[str]:
    """Something else that answers with the gateway's certificate; gives its address. `reply` makes the status
    and the document for a method and a path."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            status, document = reply(self.command, self.path)
            self.wfile.write(
                answer(status, "Content-Type: application/json", body=json.dumps(document).encode())
            )

        do_GET = do_POST = do_PUT = _answer

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(state / "certificate.pem", state / "key.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"https://localhost:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def sessions(api: Api, **query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get("/subscribers", params=query)["sessions"]
    return found


def with_a_name(api: Api, number: int) -> list[dict[str, Any]]:
    """The first PPPoE sessions."""
    return sessions(api, type="pppoe", limit=str(number))


def rates(api: Api, session: Mapping[str, Any]) -> tuple[int, int]:
    found = api.get(f"/subscribers/{session['id']}")
    return found["rate_down_bps"], found["rate_up_bps"]


def a_vlan(api: Api) -> str:
    """An access interface that somebody is on."""
    found: str = api.get(f"/subscribers/{with_a_name(api, 1)[0]['id']}")["access_interface"]
    return found


def set_value(api: Api, path: str, value: Any) -> None:
    sent = api.send("POST", "/system/config/set", json={"path": path, "value": value})
    assert sent.status_code == 200, sent.text


def commit(api: Api) -> None:
    sent = api.send("POST", "/system/config/commit")
    assert sent.status_code == 200, sent.text


def staged(api: Api) -> str:
    found: str = api.get("/system/config/compare", "admin")["diff"]
    return found


# All of them


def test_shellcheck_has_nothing_to_say() -> None:
    said = subprocess.run(
        ["shellcheck", "--external-sources", *SCRIPTS, "gateway.bash"],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_says_how_it_is_used(desk: Desk, script: str) -> None:
    ended = desk.run(script, "--help")
    # To a monitor, help is no good state of the gateway.
    assert ended.status == (UNKNOWN if script == "check_gateway" else 0)
    assert ended.out.startswith(f"Usage: {script} ")
    assert max(map(len, ended.out.splitlines())) <= 80


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_option_that_is_none_is_refused(desk: Desk, script: str) -> None:
    ended = desk.run(script, "--nonsense")
    assert ended.status == (UNKNOWN if script == "check_gateway" else USAGE)
    assert "See --help" in ended.out + ended.err


@pytest.mark.parametrize(
    ("script", "option"),
    [
        ("gateway-login", "--user"),
        ("gateway-list", "--sort"),
        ("gateway-restore", "--within"),
        ("gateway-restore", "--max-dropped"),
        ("gateway-follow", "--after"),
        ("check_gateway", "-t"),
    ],
)
def test_an_option_without_its_value_is_refused(desk: Desk, script: str, option: str) -> None:
    ended = desk.run(script, option)
    assert ended.status == (UNKNOWN if script == "check_gateway" else USAGE)
    assert "requires a value" in ended.out + ended.err


def test_a_gateway_that_does_not_answer_is_told_from_one_that_refuses(desk: Desk) -> None:
    desk.environment["GATEWAY_URL"] = "https://localhost:1"
    ended = desk.run("gateway-list")
    assert (ended.status, ended.out) == (AWAY, "")
    assert "no response from a gateway at https://localhost:1" in ended.err


def test_a_certificate_that_nobody_vouches_for_is_not_trusted(desk: Desk) -> None:
    del desk.environment["GATEWAY_CA"]
    ended = desk.run("gateway-list")
    assert ended.status == AWAY
    assert "SSL certificate" in ended.err


def test_nothing_is_sent_without_tls(desk: Desk) -> None:
    with Receiver() as receiver:
        desk.environment["GATEWAY_URL"] = receiver.url
        assert desk.run("gateway-list").status == AWAY
        assert receiver.received == []


def test_the_version_of_the_scripts_is_that_of_the_package() -> None:
    held = re.search(r"(?m)^readonly VERSION=(.*)$", (FOLDER / "gateway.bash").read_text())
    assert held
    assert held[1] == VERSION
    assert f"check_gateway {VERSION}" in (FOLDER / "check_gateway").read_text()


def test_a_core_that_is_away_is_told_with_the_number_of_the_request(gateway: Gateway, operator: Desk) -> None:
    with away(gateway):
        ended = operator.run("gateway-list")
    assert ended.status == AWAY
    assert re.fullmatch(r"gateway-list: Core daemon unreachable \(request \S+\)\n", ended.err)


def test_what_the_gateway_says_cannot_move_the_cursor(gateway: Gateway, desk: Desk) -> None:
    evil = "\x1b[2Jeve\r\n\x9b31m\u202e\u2028"
    session = {"id": 1, "type": evil, "username": evil, "ip_address": evil, "interface": evil}
    more = {"rate_down": 1, "rate_up": 1, "started_at": 1}
    page = {"sessions": [session | more], "next_cursor": None}
    with pretender(gateway.state, lambda *_: (200, {"status": "ok", "data": page})) as url:
        desk.environment["GATEWAY_URL"] = url
        shown = desk.done("gateway-list")
    with pretender(gateway.state, lambda *_: (400, {"status": "error", "message": evil})) as url:
        desk.environment["GATEWAY_URL"] = url
        said = desk.run("gateway-list").err
    assert "?[2Jeve???31m??" in shown
    assert "?[2Jeve???31m??" in said
    for text in (shown, said):
        assert all(letter.isprintable() or letter == "\n" for letter in text)


@pytest.mark.parametrize(("ipv6", "address"), [("2001:db8::2", "2001:db8::2"), (None, "-")])
def test_a_session_without_ipv4_is_listed(
    gateway: Gateway, desk: Desk, ipv6: str | None, address: str
) -> None:
    session = {"id": 1, "type": "PPPoE", "username": "eve", "ip_address": None, "interface": "ppp0"}
    more = {"ipv6_address": ipv6, "rate_down": 1000, "rate_up": 1000, "started_at": 1}
    page = {"sessions": [session | more], "next_cursor": None}
    with pretender(gateway.state, lambda *_: (200, {"status": "ok", "data": page})) as url:
        desk.environment["GATEWAY_URL"] = url
        _, line = desk.done("gateway-list").splitlines()
    assert line.split()[:5] == ["1", "PPPoE", "eve", address, "ppp0"]


def test_an_answer_that_is_no_gateways_is_no_success(gateway: Gateway, desk: Desk) -> None:
    with Receiver(
        answer(200, "Content-Type: text/html", body=b"Welcome"), tls=_server_tls(gateway)
    ) as receiver:
        desk.environment["GATEWAY_URL"] = f"https://localhost:{receiver.port}"
        ended = desk.run("gateway-list")
    assert (ended.status, ended.out) == (AWAY, "")


def _server_tls(gateway: Gateway) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(gateway.state / "certificate.pem", gateway.state / "key.pem")
    return context


def test_no_secret_is_on_any_command_line(gateway: Gateway, admin: Desk) -> None:
    """What ps could show at any moment is what strace sees started."""
    log = admin.folder / "started"
    trace = ("strace", "-f", "-qq", "-s", "100000", "-e", "trace=execve", "-o", str(log), "-A")
    secret = admin.write("signing secret", SIGNING_SECRET)
    backup, kept = (
        str(admin.folder / "backup"),
        admin.write("kept", json.dumps({"radius.secret": "verysecret"})),
    )
    password = gateway.api.environment["ADMIN_PASSWORD"]
    admin.run("gateway-login", "--user", "admin", "--password-file", "-", feed=password, wrap=trace)
    admin.run("gateway-list", wrap=trace)
    hook = ("gateway-webhook", "register", "--secret-file", secret, "http://127.0.0.1:9/hook")
    webhook = admin.run(*hook, wrap=trace).out.strip()
    admin.run("gateway-backup", backup, wrap=trace)
    assert admin.run("gateway-restore", "--dry-run", "--secrets", kept, backup, wrap=trace).status == 0
    admin.done("gateway-webhook", "delete", webhook)
    started = log.read_text()
    assert started.count('execve("/usr/bin/curl"') > 5
    assert "http://127.0.0.1:9/hook" in started
    for hidden in (password, admin.token, SIGNING_SECRET, "verysecret"):
        assert hidden not in started


# gateway-login


def test_a_token_is_kept_for_the_eyes_of_its_owner(operator: Desk) -> None:
    assert operator.token_file.stat().st_mode & 0o777 == 0o600
    assert operator.token_file.parent.stat().st_mode & 0o777 == 0o700
    assert operator.api.send("GET", "/subscribers/summary", token=operator.token).status_code == 200


def test_without_a_runtime_folder_the_token_is_kept_at_home(desk: Desk) -> None:
    del desk.environment["XDG_RUNTIME_DIR"]
    desk.log_in("operator")
    (found,) = (desk.folder / ".cache" / "gateway").iterdir()
    assert found.stat().st_mode & 0o777 == 0o600


def test_a_token_of_one_gateway_is_not_shown_to_another(gateway: Gateway, operator: Desk) -> None:
    with Receiver(answer(200), tls=_server_tls(gateway)) as receiver:
        operator.environment["GATEWAY_URL"] = f"https://localhost:{receiver.port}"
        operator.run("gateway-list")
        (request,) = receiver.received
    assert "authorization" not in {name.lower() for name, _ in request.headers}


def test_a_password_is_asked_for_without_an_echo(desk: Desk) -> None:
    password = desk.api.environment["OPERATOR_PASSWORD"]
    terminal = desk.at_terminal("gateway-login")
    terminal.expect(f"Username for {desk.api.url}: ")
    terminal.type("operator\n")
    terminal.expect("Password of operator: ")
    terminal.type(f"{password}\n")
    assert terminal.end() == 0
    assert "Logged in to" in terminal.shown
    assert password not in terminal.shown
    desk.done("gateway-list")


def test_a_password_may_come_by_standard_input(desk: Desk) -> None:
    feed = desk.api.environment["OPERATOR_PASSWORD"] + "\r\n"
    desk.done("gateway-login", "--user", "operator", "--password-file", "-", feed=feed)
    desk.done("gateway-list")


def test_a_wrong_password_is_refused_and_the_old_token_stays(operator: Desk) -> None:
    before = operator.token
    ended = operator.run("gateway-login", "--user", "operator", "--password-file", "-", feed="wrong")
    assert ended.status == DENIED
    assert "Incorrect username or password" in ended.err
    assert operator.token == before


@pytest.mark.parametrize("feed", ["", "\n"])
def test_no_password_is_no_login(desk: Desk, feed: str) -> None:
    ended = desk.run("gateway-login", "--user", "operator", "--password-file", "-", feed=feed)
    assert ended.status in (USAGE, DENIED)
    assert ended.err


def test_without_a_terminal_a_password_cannot_be_asked_for(desk: Desk) -> None:
    ended = desk.run("gateway-login", "--user", "operator")
    assert ended.status == USAGE
    assert "no terminal" in ended.err


def test_who_is_not_logged_in_is_told_how(desk: Desk) -> None:
    ended = desk.run("gateway-list")
    assert ended.status == DENIED
    assert "gateway-login logs in" in ended.err


def test_a_logout_makes_the_token_worthless(operator: Desk) -> None:
    token, file = operator.token, operator.token_file
    assert "Logged out" in operator.done("gateway-login", "--logout")
    assert not file.exists()
    assert operator.api.send("GET", "/subscribers/summary", token=token).status_code == 401


def test_a_token_that_holds_is_not_renewed_without_need(operator: Desk) -> None:
    before = operator.token
    assert "Still logged in" in operator.done("gateway-login", "--if-needed")
    assert operator.token == before


def _revoke(_: Gateway, desk: Desk) -> None:
    assert desk.api.send("POST", "/auth/logout", token=desk.token).status_code == 200


def _expire(gateway: Gateway, desk: Desk) -> None:
    secret = (gateway.state / "secret").read_text()
    claims = jwt.decode(desk.token, options={"verify_signature": False})
    claims |= {"iat": claims["iat"] - 7200, "exp": claims["iat"] - 3600}
    desk.token_file.write_text(f"Authorization: Bearer {jwt.encode(claims, secret, 'HS256')}\n")


@pytest.mark.parametrize("spoil", [_revoke, _expire])
def test_a_token_that_holds_no_more_is_refused(
    gateway: Gateway, operator: Desk, spoil: Callable[[Gateway, Desk], None]
) -> None:
    spoil(gateway, operator)
    ended = operator.run("gateway-list")
    assert ended.status == DENIED
    assert "Could not validate credentials" in ended.err


@pytest.mark.parametrize("spoil", [_revoke, _expire])
def test_a_token_that_holds_no_more_is_renewed_from_the_password_file(
    gateway: Gateway, operator: Desk, spoil: Callable[[Gateway, Desk], None]
) -> None:
    spoil(gateway, operator)
    operator.environment |= {
        "GATEWAY_USER": "operator",
        "GATEWAY_PASSWORD_FILE": operator.password_file("operator"),
    }
    assert "USERNAME" in operator.done("gateway-list", "--username", "nobody")
    assert operator.api.send("GET", "/subscribers/summary", token=operator.token).status_code == 200


def test_a_token_that_holds_no_more_is_renewed_by_whoever_is_at_the_terminal(
    gateway: Gateway, operator: Desk
) -> None:
    _revoke(gateway, operator)
    terminal = operator.at_terminal("gateway-list", "--username", "nobody")
    terminal.expect("Username for")
    terminal.type("operator\n")
    terminal.expect("Password of operator: ")
    terminal.type(operator.api.environment["OPERATOR_PASSWORD"] + "\n")
    assert terminal.end() == 0
    assert "USERNAME" in terminal.shown


# gateway-list


def test_all_pages_are_listed(operator: Desk) -> None:
    listed = operator.done("gateway-list").splitlines()[1:]
    assert [int(line.split()[0]) for line in listed] == [one["id"] for one in sessions(operator.api)]
    assert len(listed) > 2000


def test_columns_are_aligned(operator: Desk) -> None:
    head, *rows = operator.done("gateway-list").splitlines()
    for name in ("USERNAME", "ADDRESS", "INTERFACE", "DOWN", "SINCE"):
        at = head.index(name)
        assert {row[at - 2 : at] for row in rows} == {"  "}
        assert all(row[at] != " " for row in rows)


def test_filters_must_all_hold(operator: Desk) -> None:
    wanted = with_a_name(operator.api, 1)[0]
    arguments = ("--type", "pppoe", "--username", wanted["username"], "--ip", wanted["ip_address"])
    (row,) = operator.done("gateway-list", *arguments).splitlines()[1:]
    assert row.split()[:5] == [
        str(wanted["id"]),
        "PPPoE",
        wanted["username"],
        wanted["ip_address"],
        wanted["interface"],
    ]


def test_a_name_with_a_space_and_an_ampersand_is_a_name(operator: Desk) -> None:
    assert len(operator.done("gateway-list", "--username", "no & body=1").splitlines()) == 1


def test_the_order_is_the_one_asked_for(operator: Desk) -> None:
    listed = operator.done("gateway-list", "--sort", "-id").splitlines()[1:]
    ids = [int(line.split()[0]) for line in listed]
    assert ids == sorted(ids, reverse=True)


def test_a_filter_that_the_gateway_refuses_is_named_with_its_rule(operator: Desk) -> None:
    ended = operator.run("gateway-list", "--type", "isdn")
    assert ended == (FAILED, "", "gateway-list: type: must be pppoe or dhcp\n")


# gateway-disconnect-vlan


def test_a_dry_run_disconnects_nobody(admin: Desk) -> None:
    vlan = a_vlan(admin.api)
    there = sessions(admin.api, interface=vlan)
    shown = admin.done("gateway-disconnect-vlan", "--dry-run", vlan)
    assert all(one["username"] in shown for one in there)
    assert f"would be disconnected on {vlan}" in shown
    assert sessions(admin.api, interface=vlan) == there


def test_who_says_no_disconnects_nobody(admin: Desk) -> None:
    vlan = a_vlan(admin.api)
    there = sessions(admin.api, interface=vlan)
    terminal = admin.at_terminal("gateway-disconnect-vlan", vlan)
    terminal.expect("Disconnect them? [y/N] ")
    terminal.type("\n")
    assert terminal.end() == FAILED
    assert "no session was disconnected" in terminal.shown
    assert sessions(admin.api, interface=vlan) == there


def test_who_says_yes_disconnects_everybody(admin: Desk) -> None:
    vlan = a_vlan(admin.api)
    terminal = admin.at_terminal("gateway-disconnect-vlan", vlan)
    terminal.expect("Disconnect them? [y/N] ")
    terminal.type("y\n")
    assert terminal.end() == 0
    assert sessions(admin.api, interface=vlan) == []


def test_yes_may_be_said_beforehand(admin: Desk) -> None:
    vlan = a_vlan(admin.api)
    number = len(sessions(admin.api, interface=vlan))
    shown = admin.done("gateway-disconnect-vlan", "--yes", vlan)
    assert shown.splitlines()[-1].startswith(f"{number} session")
    assert sessions(admin.api, interface=vlan) == []


def test_without_anybody_to_ask_nobody_is_disconnected(admin: Desk) -> None:
    vlan = a_vlan(admin.api)
    there = sessions(admin.api, interface=vlan)
    assert admin.run("gateway-disconnect-vlan", vlan, feed="y\n").status == USAGE
    assert sessions(admin.api, interface=vlan) == there


def test_an_interface_that_nobody_is_on_needs_no_question(admin: Desk) -> None:
    assert admin.done("gateway-disconnect-vlan", "lo") == "0 sessions would be disconnected on lo\n"


def test_an_interface_that_does_not_exist_is_said_not_to(admin: Desk) -> None:
    ended = admin.run("gateway-disconnect-vlan", 'no "such" one')
    assert ended == (FAILED, "", "gateway-disconnect-vlan: No such interface\n")


def test_an_operator_disconnects_nobody(operator: Desk) -> None:
    ended = operator.run("gateway-disconnect-vlan", "--yes", a_vlan(operator.api))
    assert ended == (DENIED, "", "gateway-disconnect-vlan: Admin role required\n")


# gateway-rates


def rows(names: list[str], down: str = "7mbit", up: str = "3mbit") -> str:
    return "".join(f"{name},{down},{up}\n" for name in names)


def test_rates_are_those_of_the_file(admin: Desk) -> None:
    chosen = with_a_name(admin.api, 3)
    names = [one["username"] for one in chosen]
    file = admin.write("night.csv", "username,down,up\n" + rows(names))
    assert admin.done("gateway-rates", file) == "3 changed, 0 failed, 0 not online, 0 bad, 0 not tried\n"
    assert {rates(admin.api, one) for one in chosen} == {(7_000_000, 3_000_000)}
    # Once more does no harm.
    assert admin.done("gateway-rates", file).startswith("3 changed")


def test_a_session_may_go_by_its_number(admin: Desk) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    admin.done("gateway-rates", "-", feed=f"id,down,up\n{chosen['id']},9mbit,2mbit\n")
    assert rates(admin.api, chosen) == (9_000_000, 2_000_000)


def test_a_file_as_spreadsheets_write_it_is_read(admin: Desk) -> None:
    chosen = with_a_name(admin.api, 2)
    first, second = (one["username"] for one in chosen)
    head = '\ufeffusername,down,up\r\n\r\n# comment, "really\r\n'
    feed = f'{head}"{first}", "6 mbit",1mbit\r\n {second} ,6mbit,1mbit\r\n'
    admin.done("gateway-rates", "-", feed=feed)
    assert {rates(admin.api, one) for one in chosen} == {(6_000_000, 1_000_000)}


def test_quotes_and_commas_in_a_name_are_part_of_it(admin: Desk) -> None:
    name = 'bob "the second", of somewhere'
    path = admin.folder / "quoted.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["username", "down", "up"], [name, "1mbit", "1mbit"]])
    ended = admin.run("gateway-rates", str(path))
    assert f"line 2: {name} is not online" in ended.err


def test_a_dry_run_changes_no_rate(admin: Desk) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    before = rates(admin.api, chosen)
    feed = "username,down,up\n" + rows([chosen["username"]], "5mbit")
    assert admin.done("gateway-rates", "--dry-run", "-", feed=feed).startswith("1 would change")
    assert rates(admin.api, chosen) == before


BAD = {
    "two fields": "a,1mbit",
    "four fields": "a,1mbit,1mbit,1mbit",
    "an empty field": "a,,1mbit",
    "a quote that isn't closed": '"a,1mbit,1mbit',
    "a quote within": 'a"b,1mbit,1mbit',
    "the same once more": "first,2mbit,2mbit",
}


@pytest.mark.parametrize("line", BAD.values(), ids=BAD)
def test_a_bad_line_is_named_by_its_number_and_nothing_is_changed(admin: Desk, line: str) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    before = rates(admin.api, chosen)
    feed = f"username,down,up\nfirst,1mbit,1mbit\n{line}\n" + rows([chosen["username"]], "4mbit")
    ended = admin.run("gateway-rates", "-", feed=feed)
    assert ended.status == USAGE
    assert re.search(r"^gateway-rates: line 3: ", ended.err, re.MULTILINE)
    assert "nothing was changed" in ended.err
    assert rates(admin.api, chosen) == before


def test_bad_lines_may_be_passed_over_but_not_silently(admin: Desk) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    feed = "username,down,up\nnonsense\n" + rows([chosen["username"]], "4mbit")
    ended = admin.run("gateway-rates", "--skip-bad", "-", feed=feed)
    assert ended.status == FAILED
    assert ended.out == "1 changed, 0 failed, 0 not online, 1 bad, 0 not tried\n"
    assert rates(admin.api, chosen)[0] == 4_000_000


def test_without_its_first_line_a_file_is_not_guessed_at(admin: Desk) -> None:
    (chosen,) = with_a_name(admin.api, 1)
    before = rates(admin.api, chosen)
    ended = admin.run("gateway-rates", "--skip-bad", "-", feed=rows([chosen["username"]] * 2, "2mbit"))
    assert ended.status == FAILED
    assert "line 1: must be username,down,up or id,down,up" in ended.err
    assert rates(admin.api, chosen) == before


@pytest.mark.parametrize("cut", ["", "username,down,up\nalice,100mbit,5"])
def test_a_file_that_is_not_whole_changes_nothing(admin: Desk, cut: str) -> None:
    assert admin.run("gateway-rates", "--skip-bad", "-", feed=cut).status == USAGE


def test_a_change_that_fails_does_not_keep_the_rest_from_being_made(admin: Desk) -> None:
    one, other = with_a_name(admin.api, 2)
    feed = (
        "username,down,up\nnobody,1mbit,1mbit\n"
        + rows([one["username"]], "5 parsec")
        + rows([other["username"]], "8mbit")
    )
    ended = admin.run("gateway-rates", "-", feed=feed)
    assert ended.status == FAILED
    assert "line 2: nobody is not online" in ended.err
    assert f"line 3: {one['username']}: rate_down: has an unknown unit" in ended.err
    assert ended.out == "1 changed, 1 failed, 1 not online, 0 bad, 0 not tried\n"
    assert rates(admin.api, other)[0] == 8_000_000


def test_somebody_who_is_not_online_may_be_no_failure(admin: Desk) -> None:
    feed = "username,down,up\nnobody,1mbit,1mbit\n"
    assert admin.run("gateway-rates", "-", feed=feed).status == FAILED
    admin.done("gateway-rates", "--offline-ok", "-", feed=feed)


def test_progress_is_a_bar_at_a_terminal_and_lines_elsewhere(admin: Desk) -> None:
    names = [one["username"] for one in with_a_name(admin.api, 4)]
    file = admin.write("night.csv", "username,down,up\n" + rows(names))
    terminal = admin.at_terminal("gateway-rates", file)
    assert terminal.end() == 0
    assert f"\r[{'#' * 20}{' ' * 20}] 2 of 4, 0 failed" in terminal.shown
    ended = admin.run("gateway-rates", file)
    assert "gateway-rates: 2 of 4, 0 failed\n" in ended.err
    assert "\r" not in ended.err


def test_an_operator_gives_up_at_the_first_line(operator: Desk) -> None:
    names = [one["username"] for one in with_a_name(operator.api, 3)]
    ended = operator.run("gateway-rates", "-", feed="username,down,up\n" + rows(names))
    assert ended.status == DENIED
    assert ended.out == "0 changed, 0 failed, 0 not online, 0 bad, 3 not tried\n"


def test_a_gateway_that_goes_away_meanwhile_is_waited_for_and_then_given_up(
    gateway: Gateway, desk: Desk
) -> None:
    tried = []

    def reply(method: str, path: str) -> Reply:
        if method == "GET":
            online = [{"username": name, "id": number} for number, name in enumerate("abc", 1)]
            return 200, {"status": "ok", "data": {"sessions": online, "next_cursor": None}}
        tried.append(path)
        # The first time b fails only for a moment.
        if path.endswith("/1/rate") or (path.endswith("/2/rate") and len(tried) > 2):
            return 200, {"status": "ok", "data": {}}
        return 500, {"status": "error", "message": "Core daemon unreachable"}

    with pretender(gateway.state, reply) as url:
        desk.environment["GATEWAY_URL"] = url
        ended = desk.run("gateway-rates", "-", feed="username,down,up\n" + rows(["a", "b", "c"]))
    assert ended.status == AWAY
    assert ended.out == "2 changed, 0 failed, 0 not online, 0 bad, 1 not tried\n"
    assert "stopped at line 4; run it again for the rest" in ended.err
    assert (
        tried
        == ["/api/v1/subscribers/1/rate", *["/api/v1/subscribers/2/rate"] * 2]
        + ["/api/v1/subscribers/3/rate"] * 4
    )


# gateway-backup and gateway-restore


@pytest.fixture
def backup(admin: Desk) -> str:
    """A file; whatever a test stages or commits is gone after it."""
    path = str(admin.folder / "back up.json")
    admin.done("gateway-backup", path)
    return path


@pytest.fixture(autouse=True, scope="module")
def _configuration_as_it_was(gateway: Gateway) -> Iterator[None]:
    before = gateway.api.get("/system/config")
    yield
    assert gateway.api.get("/system/config") == before


def test_a_backup_has_all_but_the_secrets_and_says_so(admin: Desk) -> None:
    ended = admin.run("gateway-backup", "-")
    assert json.loads(ended.out) == admin.api.get("/system/config")
    assert "Not in the backup" in ended.err
    assert [line.strip() for line in ended.err.splitlines()[1:]] == [
        "api.users.admin.password_hash",
        "api.users.operator.password_hash",
        "radius.secret",
    ]


def test_a_backup_is_for_the_eyes_of_its_owner(admin: Desk, backup: str) -> None:
    assert Path(backup).stat().st_mode & 0o777 == 0o600


def test_a_backup_without_a_name_is_named_after_the_gateway(admin: Desk) -> None:
    admin.done("gateway-backup")
    (found,) = admin.folder.glob("*.json")
    assert re.fullmatch(r"bng1-\d{8}T\d{6}Z\.json", found.name)


def test_a_backup_that_fails_leaves_the_one_before(gateway: Gateway, admin: Desk, backup: str) -> None:
    before = Path(backup).read_text()
    with away(gateway):
        assert admin.run("gateway-backup", backup).status == AWAY
    assert Path(backup).read_text() == before
    assert not list(admin.folder.glob("*.json.*"))


def test_what_was_backed_up_comes_back(admin: Desk, backup: str) -> None:
    api = admin.api
    before = api.get("/system/config")
    set_value(api, "qos.default_down", "200mbit")
    set_value(api, "bgp", None)
    set_value(api, "demux.vlan_profiles.extra", '{"name":"extra","type":"dhcp","vlan_range":"10-20",'
              '"outer_vlan_range":"10-20","overhead_profile":"ipoe_qinq"}')  # fmt: skip
    set_value(api, "api.users.carol", {"username": "carol", "role": "operator", "password_hash": HASH})
    set_value(api, "api.users.operator.role", "admin")
    commit(api)
    shown = admin.done("gateway-restore", "--yes", backup)
    # The operator has been an admin meanwhile, which ended his tokens.
    api.forget_tokens()
    assert '+ qos.default_down = "100mbit"' in shown
    assert "Running secrets stay as they are" in shown
    assert api.get("/system/config") == before
    # The secrets that were masked in the file are still those of before.
    assert api.log_in("operator", api.environment["OPERATOR_PASSWORD"]).status_code == 200


def test_what_runs_already_is_not_restored(admin: Desk, backup: str) -> None:
    revisions = admin.api.get("/system/config/archive")
    assert admin.done("gateway-restore", "--yes", backup) == "The backup runs already; nothing to restore\n"
    assert admin.api.get("/system/config/archive") == revisions


def test_a_dry_run_shows_the_difference_and_leaves_nothing_staged(admin: Desk, backup: str) -> None:
    document = json.loads(Path(backup).read_text())
    document["system"]["hostname"] = "other"
    file = admin.write("other.json", json.dumps(document))
    shown = admin.done("gateway-restore", "--dry-run", file)
    assert '+ system.hostname = "other"' in shown
    assert staged(admin.api) == ""
    assert admin.api.get("/system/config")["system"]["hostname"] == "bng1"


def test_a_restore_ends_no_more_sessions_than_it_may(admin: Desk, backup: str) -> None:
    document = json.loads(Path(backup).read_text())
    document["demux"]["trunks"] = ["trunk0"]
    file = admin.write("other.json", json.dumps(document))
    known = admin.api.get("/subscribers/summary")["total"]
    shown = re.search(
        r"^Sessions that end: ([1-9]\d*)$", admin.done("gateway-restore", "--dry-run", file), re.M
    )
    assert shown
    ended = admin.run("gateway-restore", "--yes", "--max-dropped", str(int(shown[1]) - 1), file)
    assert ended.status == FAILED
    assert f"would end {shown[1]} sessions" in ended.err
    assert admin.api.get("/subscribers/summary")["total"] == known
    assert staged(admin.api) == ""


def test_who_does_not_keep_a_restored_configuration_gets_back_what_ran(admin: Desk, backup: str) -> None:
    document = json.loads(Path(backup).read_text())
    document["system"]["hostname"] = "other"
    file = admin.write("other.json", json.dumps(document))
    terminal = admin.at_terminal("gateway-restore", "--within", "2", file)
    terminal.expect("Commit this? [y/N] ")
    terminal.type("y\n")
    terminal.expect("Keep it? [y/N] ")
    assert admin.api.get("/system/config")["system"]["hostname"] == "other"
    terminal.type("n\n")
    assert terminal.end() == FAILED
    assert "not confirmed" in terminal.shown
    back = "what ran before"
    wait_for(back, lambda: admin.api.get("/system/config")["system"]["hostname"] == "bng1", 10)


def test_who_does_not_commit_leaves_nothing_staged(admin: Desk, backup: str) -> None:
    document = json.loads(Path(backup).read_text())
    document["system"]["hostname"] = "other"
    file = admin.write("other.json", json.dumps(document))
    terminal = admin.at_terminal("gateway-restore", file)
    terminal.expect("Commit this? [y/N] ")
    assert staged(admin.api)
    terminal.type("n\n")
    assert terminal.end() == FAILED
    assert staged(admin.api) == ""


def test_an_interrupted_restore_leaves_nothing_staged(admin: Desk, backup: str) -> None:
    document = json.loads(Path(backup).read_text())
    document["system"]["hostname"] = "other"
    file = admin.write("other.json", json.dumps(document))
    terminal = admin.at_terminal("gateway-restore", file)
    terminal.expect("Commit this? [y/N] ")
    terminal.type("\x03")
    assert terminal.end() != 0
    assert staged(admin.api) == ""


def test_what_somebody_else_has_staged_stops_a_restore(admin: Desk, backup: str) -> None:
    set_value(admin.api, "qos.default_up", "33mbit")
    commit(admin.api)
    set_value(admin.api, "qos.default_down", "44mbit")
    for more in ((), ("--discard", "--dry-run")):
        ended = admin.run("gateway-restore", "--yes", *more, backup)
        assert ended.status == FAILED
        assert '+ qos.default_down = "44mbit"' in ended.err
        assert "44mbit" in staged(admin.api)
    admin.done("gateway-restore", "--yes", "--discard", backup)
    assert staged(admin.api) == ""


@pytest.fixture
def operator_deleted(admin: Desk, backup: str) -> None:
    sent = admin.api.send("POST", "/system/config/delete", json={"path": "api.users.operator"})
    assert sent.status_code == 200
    commit(admin.api)


@pytest.mark.usefixtures("operator_deleted")
def test_a_secret_that_nobody_has_is_told_left_out_or_given(
    gateway: Gateway, admin: Desk, backup: str
) -> None:
    api = admin.api
    users = json.loads((gateway.state / "factory.json").read_text())["api"]["users"]
    (hash,) = (user["password_hash"] for user in users if user["username"] == "operator")
    ended = admin.run("gateway-restore", "--yes", backup)
    assert ended.status == FAILED
    assert "  api.users.operator.password_hash\n" in ended.err
    assert staged(api) == ""
    ended = admin.run("gateway-restore", "--yes", "--leave-out", backup)
    assert ended.out == "The backup runs already; nothing to restore\n"
    assert "left out" in ended.err
    kept = admin.write("kept.json", json.dumps({"api.users.operator.password_hash": hash}))
    admin.done("gateway-restore", "--yes", "--secrets", kept, backup)
    api.forget_tokens()
    assert api.log_in("operator", api.environment["OPERATOR_PASSWORD"]).status_code == 200


def test_a_secret_that_the_backup_does_not_know_is_refused(admin: Desk, backup: str) -> None:
    kept = admin.write("kept.json", json.dumps({"api.users.oprator.password_hash": HASH}))
    ended = admin.run("gateway-restore", "--yes", "--secrets", kept, backup)
    assert ended.status == USAGE
    assert "no such secret: api.users.oprator.password_hash" in ended.err


@pytest.mark.parametrize("text", ["", "nonsense", "[]", "{}", '{"system":{}}'])
def test_a_file_that_is_no_backup_is_refused(admin: Desk, text: str) -> None:
    ended = admin.run("gateway-restore", "--yes", admin.write("file.json", text))
    assert ended.status == USAGE
    assert "is not a backup of a configuration" in ended.err


def test_a_configuration_that_does_not_hold_is_refused_with_its_rules(admin: Desk, backup: str) -> None:
    document = json.loads(Path(backup).read_text())
    document["demux"]["trunks"] = ["nowhere"]
    ended = admin.run("gateway-restore", "--yes", admin.write("file.json", json.dumps(document)))
    assert ended.status == FAILED
    assert "demux.trunks: must be among interfaces.trunks" in ended.err
    assert staged(admin.api) == ""


# gateway-follow


def disconnect(api: Api) -> str:
    """Somebody, who is named."""
    (chosen,) = with_a_name(api, 1)
    assert api.send("DELETE", f"/subscribers/{chosen['id']}").status_code == 200
    name: str = chosen["username"]
    return name


def first_event(running: Running, api: Api) -> str:
    """Somebody is disconnected until it shows."""

    def seen() -> str | None:
        name = disconnect(api)
        time.sleep(0.3)
        return name if name in running.out else None

    found: str = wait_for("an event", seen, 20)
    return found


def test_an_event_is_a_line(operator: Desk) -> None:
    with operator.started("gateway-follow") as running:
        name = first_event(running, operator.api)
    line = next(line for line in running.out.splitlines() if name in line)
    assert re.fullmatch(
        rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d  down  \d+  {re.escape(name)}  admin_disconnect"
        r"  [0-9a-f:]{17}  trunk[\w.]+  \d+ s",
        line,
    )


def test_the_time_of_a_line_is_that_of_the_event(operator: Desk) -> None:
    with operator.started("gateway-follow") as running:
        first_event(running, operator.api)
        assert running.end() == 143
    before = running.err.split()[-1]
    disconnect(operator.api)
    at = time.time()
    time.sleep(3)
    with operator.started("gateway-follow", "--after", before) as again:
        again.wait_for("down")
    (line,) = again.out.splitlines()
    shown = datetime.strptime(line[:19], "%Y-%m-%d %H:%M:%S").astimezone()
    assert abs(shown.timestamp() - at) < 2


def test_nothing_is_missed_when_workers_are_killed(gateway: Gateway, operator: Desk) -> None:
    names = []
    with operator.started("gateway-follow") as running:
        names.append(first_event(running, operator.api))
        for _ in range(2):
            workers = workers_of(gateway.process)
            for pid in workers:
                os.kill(pid, signal.SIGKILL)
            wait_for_workers(gateway.process, 2, set(workers))
            running.wait_for("the stream has ended; resuming after")
            names.append(disconnect(operator.api))
            running.wait_for(names[-1])
    shown = [line.split()[4] for line in running.out.splitlines()]
    assert [name for name in shown if name in names] == names
    assert len(set(shown)) == len(shown)


def test_whoever_ends_it_is_told_how_to_go_on(operator: Desk) -> None:
    with operator.started("gateway-follow") as running:
        first_event(running, operator.api)
        assert running.end() == 143
    id = running.err.split()[-1]
    missed = disconnect(operator.api)
    with operator.started("gateway-follow", "--after", id) as again:
        again.wait_for(missed)
    assert len(again.out.splitlines()) == 1


def test_events_that_are_lost_are_told_as_a_gap(operator: Desk) -> None:
    with operator.started("gateway-follow", "--after", "another-7") as running:
        running.wait_for("GAP   events are lost")


def test_a_restart_of_the_core_is_told_as_a_gap(gateway: Gateway, operator: Desk) -> None:
    with operator.started("gateway-follow") as running:
        first_event(running, operator.api)
        os.kill(core_of(gateway.process), signal.SIGKILL)
        running.wait_for("GAP   events are lost")

    def healthy() -> bool:
        return operator.api.send("GET", "/health", None).status_code == 200

    wait_for("the core", healthy)


def test_only_events_of_a_type_are_followed(operator: Desk) -> None:
    with operator.started("gateway-follow", "--type", "dhcp", "--after", "another-7") as running:
        running.wait_for("GAP")
        disconnect(operator.api)
        (chosen,) = sessions(operator.api, type="dhcp", limit="1")
        operator.api.send("DELETE", f"/subscribers/{chosen['id']}")
        running.wait_for(chosen["username"])
    assert len(running.out.splitlines()) == 2


def test_a_token_revoked_meanwhile_ends_the_following(gateway: Gateway, operator: Desk) -> None:
    with operator.started("gateway-follow") as running:
        first_event(running, operator.api)
        _revoke(gateway, operator)
        assert running.wait() == DENIED
    assert "gateway-login logs in" in running.err


def test_a_type_that_is_none_ends_the_following_with_the_rule(operator: Desk) -> None:
    ended = operator.run("gateway-follow", "--type", "isdn")
    assert (ended.status, ended.err) == (FAILED, "gateway-follow: type: must be pppoe or dhcp\n")


def test_nothing_is_left_running_after_it(operator: Desk) -> None:
    with operator.started("gateway-follow") as running:
        first_event(running, operator.api)
    mine = f"HOME={operator.folder}".encode()

    def gone() -> bool:
        return not any(mine in _read(entry / "environ") for entry in Path("/proc").glob("[0-9]*"))

    wait_for("the end of all processes", gone, 5)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        # It has ended.
        return b""


# gateway-webhook


@contextmanager
def registered(desk: Desk, *arguments: str) -> Iterator[str]:
    id = desk.done("gateway-webhook", "register", *arguments).strip()
    try:
        yield id
    finally:
        assert desk.done("gateway-webhook", "delete", id) == f"Webhook {id} deleted\n"


def test_a_webhook_is_registered_tested_and_signed(admin: Desk) -> None:
    secret = admin.write("secret file", f"{SIGNING_SECRET}\n")
    with Receiver() as receiver, registered(admin, "--secret-file", secret, receiver.url) as id:
        assert admin.done("gateway-webhook", "test", id) == "Delivered\n"
        (received,) = receiver.received
        Webhook(SIGNING_SECRET).verify(received.body, dict(received.headers))
        assert "delivered" in admin.done("gateway-webhook", "deliveries", id)


def test_a_webhook_that_fails_in_a_row_is_listed_with_the_end_of_its_pause(admin: Desk) -> None:
    with registered(admin, "http://127.0.0.1:9/") as id:
        for _ in range(3):
            admin.run("gateway-webhook", "test", id)
        (row,) = (row for row in admin.done("gateway-webhook", "list").splitlines() if row.startswith(id))
        assert re.search(r"  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", row)
        assert row[-19:] in admin.done("gateway-webhook", "deliveries", id)


def test_a_test_that_fails_says_why(admin: Desk) -> None:
    with Receiver(answer(503)) as receiver, registered(admin, receiver.url) as id:
        ended = admin.run("gateway-webhook", "test", id)
        assert ended.status == FAILED
        assert "503" in ended.err


def test_webhooks_are_listed_with_the_events_they_get(admin: Desk) -> None:
    with registered(admin, "--event", "session.up", "http://127.0.0.1:9/up") as id:
        rows = admin.done("gateway-webhook", "list").splitlines()
        assert [row.split() for row in rows if row.startswith(id)] == [
            [id, "http://127.0.0.1:9/up", "session.up", "-"]
        ]
    assert id not in admin.done("gateway-webhook", "list")


def test_what_is_wrong_with_a_webhook_is_named_field_by_field(admin: Desk) -> None:
    ended = admin.run("gateway-webhook", "register", "--event", "session.sideways", "gopher://x")
    assert ended.status == FAILED
    assert "gateway-webhook: url: must begin with http" in ended.err
    assert "gateway-webhook: events.0: must be one of" in ended.err


@pytest.mark.parametrize("command", ["test", "deliveries", "delete"])
def test_a_webhook_that_is_not_there_is_no_webhook(admin: Desk, command: str) -> None:
    ended = admin.run("gateway-webhook", command, "wh/../no such")
    assert ended.status == FAILED
    assert ended.err
    assert admin.run("gateway-webhook", command).status == USAGE


# check_gateway


def test_a_gateway_that_fares_well_is_ok(desk: Desk) -> None:
    ended = desk.run("check_gateway", "-w", "4", "-c", "5", "-W", "1:", "-K", "@0:0")
    assert ended.status == OK
    number = r"\d+(\.\d+)?"
    assert re.fullmatch(
        rf"GATEWAY OK - \d+ sessions, {number} s, up \d+ s \| "
        rf"time={number}s;4;5;0 sessions=\d+;1:;@0:0;0 uptime=\d+s;;;0\n",
        ended.out,
    )


@pytest.mark.parametrize(
    ("arguments", "status", "state"),
    [
        (("-w", "0"), WARNING, "WARNING"),
        (("-w", "0", "-c", "0"), CRITICAL, "CRITICAL"),
        (("-W", "1000000:"), WARNING, "WARNING"),
        (("-K", "10"), CRITICAL, "CRITICAL"),
        (("-W", "@1:1000000"), WARNING, "WARNING"),
        (("-W", "~:5"), WARNING, "WARNING"),
        (("-W", "1:1000000"), OK, "OK"),
    ],
)
def test_a_value_out_of_range_has_a_state(
    desk: Desk, arguments: tuple[str, ...], status: int, state: str
) -> None:
    ended = desk.run("check_gateway", *arguments)
    assert ended.status == status
    assert ended.out.startswith(f"GATEWAY {state} - ")


@pytest.fixture(scope="module")
def faulty(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with faulty_gateway(gateway.api, gateway.state, tmp_path_factory.mktemp("faulty")) as made:
        yield made


@pytest.mark.parametrize(
    ("arguments", "status", "state"), [((), WARNING, "WARNING"), (("-K", "0"), CRITICAL, "CRITICAL")]
)
def test_a_source_that_does_not_reply_is_at_least_a_warning_with_its_name(
    faulty: Api, tmp_path: Path, arguments: tuple[str, ...], status: int, state: str
) -> None:
    ended = Desk(faulty, tmp_path).run("check_gateway", *arguments)
    assert ended.status == status
    said = f"no reply from {', '.join(SOURCES)}, {len(STALE)} stale of 20 sessions"
    assert ended.out.startswith(f"GATEWAY {state} - {said}, ")


def test_dependencies_that_are_ill_are_named_and_the_worst_counts(faulty: Api, tmp_path: Path) -> None:
    desk = Desk(faulty, tmp_path)
    ended = desk.run("check_gateway", "-d")
    assert ended.status == CRITICAL
    assert ended.out.startswith("GATEWAY CRITICAL - accel-ppp failed, radius degraded: no reply from ")
    # But not without the option.
    assert desk.run("check_gateway").status == WARNING


def test_the_check_is_as_bad_as_the_whole(gateway: Gateway, desk: Desk) -> None:
    # The disk of this machine is as it is.
    ended, whole = desk.run("check_gateway", "-d"), gateway.api.get("/system/health/detail")["state"]
    assert ended.status == {"ok": OK, "degraded": WARNING, "failed": CRITICAL}[whole]


def test_metrics_without_dependencies_are_critical(gateway: Gateway, desk: Desk) -> None:
    health = {"status": "ok", "data": gateway.api.get("/health", None)}
    reply = answer(200, "Connection: close", body=json.dumps(health).encode())
    with Receiver(reply, tls=_server_tls(gateway)) as receiver:
        url = f"https://localhost:{receiver.port}"
        assert desk.run("check_gateway", "-u", url).status == OK
        ended = desk.run("check_gateway", "-d", "-u", url)
    assert ended == (CRITICAL, "GATEWAY CRITICAL - the metrics have no dependencies\n", "")


def test_a_core_that_is_away_is_critical(gateway: Gateway, desk: Desk) -> None:
    with away(gateway):
        assert desk.run("check_gateway") == (CRITICAL, "GATEWAY CRITICAL - Core daemon unreachable\n", "")


def test_a_gateway_that_takes_too_long_is_critical(gateway: Gateway, desk: Desk) -> None:
    with away(gateway):
        ended = desk.run("check_gateway", "-t", "1")
    assert ended == (CRITICAL, "GATEWAY CRITICAL - no response within 1 s\n", "")


def test_a_gateway_that_cannot_be_reached_is_critical(desk: Desk) -> None:
    ended = desk.run("check_gateway", "-u", "https://localhost:1")
    assert ended.status == CRITICAL
    assert len(ended.out.splitlines()) == 1


def test_something_else_at_its_address_is_critical(gateway: Gateway, desk: Desk) -> None:
    with Receiver(answer(200, body=b"Welcome"), tls=_server_tls(gateway)) as receiver:
        ended = desk.run("check_gateway", "-u", f"https://localhost:{receiver.port}")
    assert ended.status == CRITICAL
    assert "is not from the gateway" in ended.out


@pytest.mark.parametrize(
    "arguments",
    [("-w", "soon"), ("-w", ""), ("-t", "0"), ("-C", "/no/such/file"), ("-u", "http://localhost"), ("x",)],
)
def test_a_check_that_cannot_be_made_is_unknown(desk: Desk, arguments: tuple[str, ...]) -> None:
    ended = desk.run("check_gateway", *arguments)
    assert ended.status == UNKNOWN
    assert ended.out.startswith("GATEWAY UNKNOWN - ")
