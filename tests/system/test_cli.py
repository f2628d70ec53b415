"""`gateway-api` and `gateway-core` as an operator runs them."""

import os
import pty
import re
import select
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway_api.auth.passwords import verify
from gateway_api.version import VERSION
from tests.support.stack import PATIENCE

COMMAND = str(Path(sys.executable).parent / "gateway-api")
CORE = [sys.executable, "-m", "gateway_api.cli.core"]
HASH = re.compile(r"\$2b\$12\$[./A-Za-z0-9]{53}")

#: Makes the terminal at standard input the one that /dev/tty means, as a login shell has it.
_TAKE_TERMINAL = """
import fcntl, os, signal, sys, termios
# Tests that run in the background may ignore it.
signal.signal(signal.SIGINT, signal.SIG_DFL)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def piped(text: bytes, *arguments: str) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        [COMMAND, *(arguments or ("hash-password",))],
        input=text,
        capture_output=True,
        timeout=60,
        check=False,
    )


def typed(
    *lines: str, program: Sequence[str] = (COMMAND,), arguments: Sequence[str] = ("hash-password",)
) -> tuple[int, str]:
    """The exit status, and all that a terminal shows, when each prompt gets the next line."""
    terminal, inside = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _TAKE_TERMINAL, *program, *arguments],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        start_new_session=True,
    )
    os.close(inside)
    shown = ""
    left = list(lines)
    prompts = 0
    deadline = time.monotonic() + PATIENCE
    try:
        while time.monotonic() < deadline:
            if not select.select([terminal], [], [], 0.1)[0]:
                continue
            try:
                data = os.read(terminal, 4096)
            except OSError:
                # How Linux says that the other end of a terminal is gone.
                break
            shown += data.decode()
            if shown.count(": ") > prompts and left:
                prompts += 1
                os.write(terminal, left.pop(0).encode())
        return process.wait(60), shown
    finally:
        process.kill()
        process.wait(60)
        os.close(terminal)


def the_hash_in(text: str) -> str:
    found = HASH.findall(text)
    assert len(found) == 1, text
    return str(found[0])


def test_a_piped_password_is_hashed() -> None:
    done = piped(b"pass word\n")
    assert done.returncode == 0
    assert verify("pass word", the_hash_in(done.stdout.decode()))


def test_a_piped_password_gives_one_line_and_nothing_else() -> None:
    done = piped(b"secret\n")
    assert HASH.fullmatch(done.stdout.decode().removesuffix("\n"))
    assert done.stderr == b""


def test_a_piped_password_needs_no_newline() -> None:
    assert verify("secret", the_hash_in(piped(b"secret").stdout.decode()))


def test_only_the_first_line_of_a_pipe_is_the_password() -> None:
    assert verify("secret", the_hash_in(piped(b"secret\nmore\n").stdout.decode()))


@pytest.mark.parametrize("text", [b"", b"\n"])
def test_an_empty_piped_password_is_refused(text: bytes) -> None:
    done = piped(text)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"must not be empty" in done.stderr


def test_a_piped_password_of_72_bytes_is_hashed() -> None:
    assert verify("x" * 72, the_hash_in(piped(b"x" * 72).stdout.decode()))


@pytest.mark.parametrize("text", [b"x" * 73, b"a\0b\n"])
def test_a_piped_password_that_bcrypt_cannot_tell_apart_is_refused(text: bytes) -> None:
    done = piped(text)
    assert (done.returncode, done.stdout) == (1, b"")
    assert b"at most 72 bytes" in done.stderr


@pytest.mark.parametrize("text", [b"", b"x" * 73, b"\xff\xfe\n"])
def test_a_refusal_is_one_line_and_no_traceback(text: bytes) -> None:
    done = piped(text)
    assert done.returncode == 1
    assert done.stderr.startswith(b"gateway-api: ")
    assert done.stderr.count(b"\n") == 1


def test_a_password_typed_twice_is_hashed() -> None:
    status, shown = typed("typed secret\n", "typed secret\n")
    assert status == 0
    assert verify("typed secret", the_hash_in(shown))


def test_a_typed_password_is_not_shown() -> None:
    _, shown = typed("typed secret\n", "typed secret\n")
    assert "Password: " in shown
    assert "typed secret" not in shown


def test_two_passwords_that_differ_give_no_hash() -> None:
    status, shown = typed("first one\n", "second one\n")
    assert status == 1
    assert "don't match" in shown
    assert not HASH.search(shown)


def test_two_passwords_that_differ_are_not_shown() -> None:
    _, shown = typed("first one\n", "second one\n")
    assert "first one" not in shown
    assert "second one" not in shown


def test_an_empty_typed_password_is_refused() -> None:
    status, shown = typed("\n", "\n")
    assert status == 1
    assert "must not be empty" in shown


@pytest.mark.parametrize("key", ["\x03", "\x04"])
def test_leaving_the_prompt_gives_no_hash_and_no_traceback(key: str) -> None:
    status, shown = typed(key)
    assert status == 1
    assert "gateway-api: stopped before the end" in shown
    assert "Traceback" not in shown


programs = pytest.mark.parametrize(
    ("command", "name"), [([COMMAND], "gateway-api"), (CORE, "gateway-core")], ids=["api", "core"]
)


@programs
@pytest.mark.parametrize("arguments", [[], ["unknown"], ["--socket", "/run/core"]], ids=" ".join)
def test_without_a_known_command_the_usage_is_shown(
    command: list[str], name: str, arguments: list[str]
) -> None:
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Usage: {name} ")


@programs
def test_the_version_is_told(command: list[str], name: str) -> None:
    said = subprocess.run([*command, "--version"], capture_output=True, timeout=60, check=True).stdout
    assert said.decode() == f"{name} {VERSION}\n"


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
    named = [word for source in sources for word in ("--source", source)]
    command = [*CORE, "linux", *folders, *named]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("key", ["\x03", "\x04"])
def test_the_setup_of_a_core_asks_on_a_terminal_and_can_be_left(key: str) -> None:
    status, shown = typed(key, program=CORE, arguments=("setup", "--source", "dnsmasq"))
    assert status == 1
    assert "Trunks, which carry the VLANs of subscribers (" in shown
    assert "gateway-core setup: stopped before the end" in shown
    assert "Traceback" not in shown


def test_the_setup_of_a_core_asks_nothing_without_a_terminal() -> None:
    command = [*CORE, "setup", "--source", "dnsmasq", "--range", "100.64.0.0/16"]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "gateway-core setup: --trunk, --uplink: required without a terminal\n"


@pytest.fixture
def pair(tmp_path: Path) -> Path:
    """A folder with a certificate and its key, and a key of another."""
    command = [
        *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
        *("-subj", "/CN=x", "-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "certificate")),
    ]
    subprocess.run(command, check=True, capture_output=True)
    another = ["openssl", "genrsa", "-out", str(tmp_path / "another"), "2048"]
    subprocess.run(another, check=True, capture_output=True)
    return tmp_path


def join(folder: Path, key: str) -> "subprocess.CompletedProcess[bytes]":
    return piped(b"", "join-certificate", *(str(folder / name) for name in ("certificate", key, "pair")))


def test_a_certificate_and_its_key_become_one_file_for_their_owner(pair: Path) -> None:
    assert join(pair, "key").returncode == 0
    assert (pair / "pair").stat().st_mode & 0o777 == 0o600
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(pair / "pair")


def test_a_key_of_another_certificate_is_refused_and_what_was_there_stays(pair: Path) -> None:
    join(pair, "key")
    held = (pair / "pair").read_bytes()
    refused = join(pair, "another")
    assert refused.returncode == 1
    assert refused.stderr.startswith(b"gateway-api: the certificate and the key can't be used together")
    assert (pair / "pair").read_bytes() == held


def test_a_key_that_is_not_there_gets_one_sentence(pair: Path) -> None:
    refused = join(pair, "none")
    assert refused.returncode == 1
    assert refused.stderr.startswith(b"gateway-api: ")
    assert refused.stderr.count(b"\n") == 1


def test_a_key_that_wants_a_password_is_refused_unasked(pair: Path) -> None:
    locked = [
        *("openssl", "ec", "-aes128", "-passout", "pass:word", "-in", str(pair / "key")),
        *("-out", str(pair / "locked")),
    ]
    subprocess.run(locked, check=True, capture_output=True)
    refused = join(pair, "locked")
    assert refused.returncode == 1
    assert refused.stderr.endswith(b"; the key has a passphrase\n")
