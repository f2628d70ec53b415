"""`gateway-api` and `gateway-core` as an operator runs them."""

import os
import re
import ssl
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway_contract.passwords import verify
from gateway_contract.version import VERSION
from tests.support.shell import Terminal

COMMAND = str(Path(sys.executable).parent / "gateway-api")
CORE = [sys.executable, "-m", "gateway_core"]
HASH = re.compile(r"\$2b\$12\$[./A-Za-z0-9]{53}")


def run(*command: str, text: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(command, input=text, capture_output=True, timeout=60, check=False)


def assert_refused(ended: "subprocess.CompletedProcess[bytes]", reason: str) -> None:
    """One line, and no traceback."""
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert ended.stderr.startswith(b"gateway-api: ")
    assert ended.stderr.count(b"\n") == 1
    assert reason in ended.stderr.decode()


def typed(
    *lines: str, program: Sequence[str] = (COMMAND,), arguments: Sequence[str] = ("hash-password",)
) -> tuple[int, str]:
    """The exit status, and all that a terminal shows, where each prompt gets the next line."""
    terminal = Terminal([*program, *arguments], dict(os.environ), Path.cwd())
    for number, line in enumerate(lines):
        while terminal.shown.count(": ") <= number and terminal.read():
            pass
        terminal.type(line)
    return terminal.end(), terminal.shown


# Passwords


@pytest.mark.parametrize(
    ("text", "password"),
    [(b"pass word\n", "pass word"), (b"secret", "secret"), (b"a\nmore\n", "a"), (b"x" * 72, "x" * 72)],
)
def test_the_first_line_of_a_pipe_is_hashed_and_nothing_else_printed(text: bytes, password: str) -> None:
    done = run(COMMAND, "hash-password", text=text)
    assert (done.returncode, done.stderr) == (0, b"")
    line = done.stdout.decode()
    assert HASH.fullmatch(line.removesuffix("\n"))
    assert verify(password, line.strip())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"\n", "must not be empty"),
        (b"x" * 73, "at most 72 bytes"),
        (b"a\0b\n", "at most 72 bytes"),
        (b"\xff\xfe\n", ""),
    ],
)
def test_a_piped_password_that_cannot_be_hashed_is_refused(text: bytes, reason: str) -> None:
    assert_refused(run(COMMAND, "hash-password", text=text), reason)


@pytest.mark.parametrize(
    ("lines", "status", "said"),
    [
        (["typed secret\n", "typed secret\n"], 0, "Password: "),
        (["first one\n", "second one\n"], 1, "don't match"),
        (["\n", "\n"], 1, "must not be empty"),
        (["\x03"], 1, "gateway-api: stopped before the end"),
        (["\x04"], 1, "gateway-api: stopped before the end"),
    ],
)
def test_a_password_is_typed_twice_and_never_shown(lines: list[str], status: int, said: str) -> None:
    ended, shown = typed(*lines)
    assert (ended, said in shown) == (status, True)
    assert "Traceback" not in shown
    assert not any(line in shown for line in lines if len(line) > 1)
    hashes = HASH.findall(shown)
    assert [verify("typed secret", hash) for hash in hashes] == ([True] if status == 0 else [])


# Commands and options

programs = pytest.mark.parametrize(
    ("command", "name"), [([COMMAND], "gateway-api"), (CORE, "gateway-core")], ids=["api", "core"]
)


@programs
def test_the_version_is_told_and_the_usage_without_a_known_command(command: list[str], name: str) -> None:
    assert run(*command, "--version").stdout.decode() == f"{name} {VERSION}\n"
    for arguments in ([], ["unknown"], ["--socket", "/run/core"]):
        done = run(*command, *arguments)
        assert (done.returncode, done.stdout) == (2, b"")
        assert done.stderr.decode().startswith(f"Usage: {name} ")


@pytest.mark.parametrize(
    ("sources", "status", "said"),
    [
        (["ospf"], 2, "Invalid value for '--source': 'ospf' is not one of"),
        (
            ["accel-ppp", "dnsmasq"],
            1,
            "gateway-core linux: accel-ppp and dnsmasq both serve dhcp: choose one",
        ),
        (["dnsmasq", "dnsmasq"], 1, "cannot start the core daemon: there is no configuration yet"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_core_takes_one_source_for_each_type_of_session(
    tmp_path: Path, sources: list[str], status: int, said: str
) -> None:
    folders = ["--socket", str(tmp_path / "core"), "--configuration", str(tmp_path / "configuration")]
    done = run(*CORE, "linux", *folders, *(word for source in sources for word in ("--source", source)))
    assert done.returncode == status
    assert said in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_the_setup_of_a_core_asks_only_on_a_terminal_and_can_be_left() -> None:
    arguments = ("setup", "--source", "dnsmasq")
    done = run(*CORE, *arguments, "--range", "100.64.0.0/16")
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr == b"gateway-core setup: --trunk, --uplink: required without a terminal\n"
    for key in ("\x03", "\x04"):
        status, shown = typed(key, program=CORE, arguments=arguments)
        assert status == 1
        assert "Trunks, which carry the VLANs of subscribers (" in shown
        assert "gateway-core setup: stopped before the end" in shown
        assert "Traceback" not in shown


# Certificates


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A folder with a certificate and its key, with that key locked, and with another."""
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for command in (
        ("req", "-x509", *curve, "-subj", "/CN=x", "-keyout", "key", "-out", "certificate"),
        ("ec", "-aes128", "-passout", "pass:word", "-in", "key", "-out", "locked"),
        ("genrsa", "-out", "another", "2048"),
    ):
        subprocess.run(["openssl", *command], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def test_a_certificate_and_its_key_become_one_file_for_their_owner(pair: Path) -> None:
    def join(key: str) -> "subprocess.CompletedProcess[bytes]":
        return run(COMMAND, "join-certificate", *(str(pair / name) for name in ("certificate", key, "pair")))

    assert join("key").returncode == 0
    assert (pair / "pair").stat().st_mode & 0o777 == 0o600
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(pair / "pair")
    held = (pair / "pair").read_bytes()
    assert_refused(join("another"), "the certificate and the key can't be used together")
    assert_refused(join("none"), "")
    assert_refused(join("locked"), "; the key has a passphrase\n")
    assert (pair / "pair").read_bytes() == held
