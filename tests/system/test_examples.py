"""The check for monitoring systems, which shows the use of curl: what it says and ends with."""

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway_contract.version import VERSION
from tests.support.receivers import Receiver, answer
from tests.support.running_gateway import SOURCES, STALE, Gateway, faulty_gateway
from tests.support.shell import CHECK, Shell
from tests.support.stack import Api, running_stack

OK, WARNING, CRITICAL, UNKNOWN = range(4)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    state = tmp_path_factory.mktemp("state")
    with running_stack(state) as (api, process):
        yield Gateway(api, process, state)


@pytest.fixture
def shell(gateway: Gateway, tmp_path: Path) -> Shell:
    return Shell(gateway.api, tmp_path)


def test_shellcheck_has_nothing_to_say() -> None:
    said = subprocess.run(["shellcheck", CHECK], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        # To a monitor, help is no good state of the gateway.
        (("--help",), "Usage: check_gateway "),
        (("--nonsense",), "See --help"),
        (("-t",), "requires a value"),
        (("-w", "soon"), "GATEWAY UNKNOWN - "),
        (("-t", "0"), "GATEWAY UNKNOWN - "),
        (("-C", "/no/such/file"), "GATEWAY UNKNOWN - "),
        (("-u", "http://localhost"), "GATEWAY UNKNOWN - "),
        (("x",), "GATEWAY UNKNOWN - "),
    ],
)
def test_a_check_that_cannot_be_made_is_unknown(shell: Shell, arguments: tuple[str, ...], said: str) -> None:
    ended = shell.check(*arguments)
    assert ended.status == UNKNOWN
    assert said in ended.out + ended.err
    assert shell.check("--version").out == f"check_gateway {VERSION}\n"


def test_a_gateway_that_fares_well_is_ok(shell: Shell) -> None:
    ended = shell.check("-w", "4", "-c", "5", "-W", "1:", "-K", "@0:0")
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
    shell: Shell, arguments: tuple[str, ...], status: int, state: str
) -> None:
    ended = shell.check(*arguments)
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
    ended = Shell(faulty, tmp_path).check(*arguments)
    assert ended.status == status
    said = f"no reply from {', '.join(SOURCES)}, {len(STALE)} stale of 20 sessions"
    assert ended.out.startswith(f"GATEWAY {state} - {said}, ")


def test_dependencies_that_are_ill_are_named_and_the_worst_counts(faulty: Api, tmp_path: Path) -> None:
    shell = Shell(faulty, tmp_path)
    ended = shell.check("-d")
    assert ended.status == CRITICAL
    assert ended.out.startswith("GATEWAY CRITICAL - accel-ppp failed, radius degraded: no reply from ")
    # But not without the option.
    assert shell.check().status == WARNING


def test_metrics_without_dependencies_are_critical(gateway: Gateway, shell: Shell) -> None:
    health = {"status": "ok", "data": gateway.api.get("/health", None)}
    reply = answer(200, "Connection: close", body=json.dumps(health).encode())
    with Receiver(reply, tls=gateway.tls()) as receiver:
        url = f"https://localhost:{receiver.port}"
        assert shell.check("-u", url).status == OK
        ended = shell.check("-d", "-u", url)
    assert ended == (CRITICAL, "GATEWAY CRITICAL - the metrics have no dependencies\n", "")


def test_a_core_that_is_away_is_critical(gateway: Gateway, shell: Shell) -> None:
    with gateway.without_core():
        assert shell.check() == (CRITICAL, "GATEWAY CRITICAL - Core daemon unreachable\n", "")


def test_a_gateway_that_does_not_reply_or_is_none_is_critical(gateway: Gateway, shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        ended = shell.check("-u", f"https://localhost:{silent.getsockname()[1]}", "-t", "1")
    assert ended == (CRITICAL, "GATEWAY CRITICAL - no response within 1 s\n", "")
    ended = shell.check("-u", "https://localhost:1")
    assert (ended.status, len(ended.out.splitlines())) == (CRITICAL, 1)
    with Receiver(answer(200, body=b"Welcome"), tls=gateway.tls()) as receiver:
        ended = shell.check("-u", f"https://localhost:{receiver.port}")
    assert (ended.status, "is not from the gateway" in ended.out) == (CRITICAL, True)
