"""The hook of pppd in a shell, signals to real processes, journalctl, and a real pppoe-server."""

import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway_api.core.gateways.linux.sources.pppd import record_of, start_of
from gateway_api.core.gateways.linux.sources.pppd_log import JournalTail, LoggedLine, SystemdJournal
from gateway_api.core.gateways.linux.sources.pppoe_server import PppoeServer
from gateway_api.core.gateways.linux.sources.source import (
    SourceRefused,
    SourceSession,
    SourceTraffic,
    SourceUnavailable,
)
from gateway_api.core.records.clock import Clock, boot_id
from gateway_api.wire.core.sessions import SessionType
from tests.support.clocks import StillClock
from tests.support.namespaces import can, ip, network_namespace, unshared
from tests.support.stack import PATIENCE, wait_for

HOOK = Path(__file__).parents[2] / "packaging" / "pppoe" / "session-hook"


class NoServices:
    def start(self, interfaces: Sequence[str]) -> None:
        raise AssertionError

    def stop(self, interface: str) -> None:
        raise AssertionError

    def lines(self, since: Mapping[int, float]) -> Mapping[int, Sequence[str]]:
        return dict.fromkeys(since, ("pppd 2.4.9 started by root, uid 0", "Terminating on signal 15"))


class Hooks:
    """As in /etc/ppp, for this process instead of pppd."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.records, self.trigger = folder, folder / "records", folder / "trigger"
        self.records.mkdir()
        for event in ("ip-up", "ip-down", "ipv6-up", "ipv6-down"):
            (folder / f"{event}.d").mkdir()
            shutil.copy(HOOK, folder / f"{event}.d" / "gateway-pppoe")

    def run(self, event: str, pid: int | None = None, **more: str) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "GATEWAY_SESSIONS": str(self.records),
            "GATEWAY_TRIGGER": str(self.trigger),
            "PPPD_PID": str(os.getpid() if pid is None else pid),
            "IFNAME": "ppp0",
            "IPREMOTE": "100.64.0.2",
            **more,
        }
        subprocess.run([self.folder / f"{event}.d" / "gateway-pppoe"], env=environment, check=True)

    def names(self) -> set[str]:
        return {path.name for path in self.records.iterdir() if path.name != "looked"}


@pytest.fixture
def hooks(tmp_path: Path) -> Hooks:
    return Hooks(tmp_path)


def own_record(family: str) -> str:
    return f"{os.getpid()}-{start(os.getpid())}.{family}"


def start(pid: int) -> int | None:
    return start_of(Path(f"/proc/{pid}/stat").read_bytes())


@pytest.fixture
def process() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that takes no notice of SIGTERM."""
    code = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started
        started.kill()


def ours(clock: Clock, folder: Path) -> PppoeServer:
    return PppoeServer("pppoe-server", NoServices(), NoServices(), folder, clock, lambda _: None)


def session_of(clock: Clock, pid: int, start: int | None) -> SourceSession:
    key = f"{clock.boot_id[:8]}-{pid}-{start}"
    return SourceSession(
        key=key,
        type=SessionType.PPPOE,
        username="alice",
        mac_address=None,
        access_interface="trunk0.100",
        interface="ppp0",
        acct_session_id=key,
        started_at=1,
    )


# The hook


def test_a_hook_leaves_a_record_for_each_family(hooks: Hooks) -> None:
    hooks.run("ip-up", PEERNAME="alice")
    hooks.run("ipv6-up", PEERNAME="alice", LLREMOTE="fe80::1")
    assert hooks.names() == {own_record("ip"), own_record("ipv6")}
    record = record_of((hooks.records / own_record("ip")).read_bytes())
    assert (record.is_up, record.username, record.ip_address) == (True, "alice", "100.64.0.2")
    assert record_of((hooks.records / own_record("ipv6")).read_bytes()).link_local == "fe80::1"


@given(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
    | st.sampled_from(["$(touch x)", "%s%n\\0", "a\nEVENT=ip-down", "-n", "\\"])
)
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_hook_takes_any_user_name(hooks: Hooks, name: str) -> None:
    hooks.run("ip-up", PEERNAME=name)
    assert record_of((hooks.records / own_record("ip")).read_bytes()).username == name
    assert hooks.names() == {own_record("ip")}


def test_a_hook_records_the_end_of_a_pppd_that_did_not_wait_for_it(
    hooks: Hooks, process: "subprocess.Popen[bytes]"
) -> None:
    earlier = hooks.records / f"{process.pid}-1.ip"
    earlier.write_bytes(b"")
    os.utime(earlier, (1, 1))
    hooks.run("ip-up", process.pid)
    name = f"{process.pid}-{start(process.pid)}.ip"
    process.kill()
    process.wait()
    hooks.run("ip-down", process.pid, BYTES_SENT="1", BYTES_RCVD="2")
    assert record_of((hooks.records / name).read_bytes()).traffic == SourceTraffic(2, 1)
    assert earlier.read_bytes() == b""


def test_a_hook_of_an_unknown_process_records_nothing(
    hooks: Hooks, process: "subprocess.Popen[bytes]"
) -> None:
    process.kill()
    process.wait()
    hooks.run("ip-up", process.pid)
    hooks.run("ip-down", process.pid)
    assert hooks.names() == set()


#: A sign-on as pppoe-server begins it, with the folder of the records on a file system of its own. The first
#: argument is the program of packaging/pppoe, the second the folder, the third has a `pppd` and the hook, the
#: fourth what happens before.
_SIGN_ON = """
set -e
mount --make-rprivate /
mount -t tmpfs -o size=64k none "$2"
export RUNTIME_DIRECTORY="$2" PATH="$3:$PATH"
eval "$4"
exec "$1" pty "/usr/sbin/pppoe -n -I trunk0.100 -e 1:02:00:00:00:00:0a -S ''" 100.64.0.1:100.64.0.16 nodetach
"""
_FILL = 'dd if=/dev/zero of="$RUNTIME_DIRECTORY/filler" 2> /dev/null || true'
#: It signs on when /run has become full.
_PPPD = f"""#!/bin/sh
for argument; do
    case $argument in GATEWAY_ROOM=*) export "$argument" ;; esac
done
{_FILL}
export GATEWAY_SESSIONS=$RUNTIME_DIRECTORY PPPD_PID=$$ IFNAME=ppp0 PEERNAME=alice IPREMOTE=100.64.0.16
"$(dirname "$0")/ip-up.d/gateway-pppoe"
echo
sleep infinity
exit
"""


@pytest.fixture
def sign_on(hooks: Hooks) -> list[str]:
    """The arguments of unshare(1) but for the last one of _SIGN_ON."""
    (hooks.folder / "pppd").write_text(_PPPD)
    (hooks.folder / "pppd").chmod(0o755)
    program = HOOK.with_name("pppd")
    return ["--mount", "sh", "-c", _SIGN_ON, "sh", str(program), str(hooks.records), str(hooks.folder)]


as_root = pytest.mark.skipif(not can("true"), reason="needs to be root, for a file system of its own")


@as_root
def test_a_session_that_comes_up_on_a_full_run_is_seen(hooks: Hooks, sign_on: list[str]) -> None:
    with unshared(*sign_on, ":") as pid:
        records = Path(f"/proc/{pid}/root{hooks.records}")
        (session,) = ours(Clock(boot_id()), records).sessions()
        assert (session.username, session.ip_address) == ("alice", "100.64.0.16")
        # The core is in the group.
        (record,) = records.glob(f"{pid}-*.ip")
        assert record.stat().st_mode & 0o777 == 0o640


@as_root
def test_on_a_full_run_no_session_begins_and_the_log_says_so(sign_on: list[str]) -> None:
    begun = subprocess.run(
        ["unshare", *sign_on, _FILL], capture_output=True, text=True, check=False, timeout=60
    )
    assert (begun.returncode, begun.stdout) == (1, "")
    assert "no PPPoE session for 100.64.0.16: no room for its records in " in begun.stderr


def test_a_hook_of_another_pppd_does_nothing(hooks: Hooks) -> None:
    hooks.run("ip-up", GATEWAY_SESSIONS="")
    assert hooks.names() == set()


def test_a_hook_sends_a_datagram_without_text_of_the_subscriber(hooks: Hooks) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as trigger:
        trigger.settimeout(60)
        trigger.bind(str(hooks.trigger))
        hooks.run("ip-up", PEERNAME="alice")
        received = trigger.recv(1024)
    assert b"ip-up" in received
    assert b"alice" not in received


def test_a_hook_does_not_wait_for_a_listener_that_hangs(hooks: Hooks) -> None:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as trigger,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
    ):
        trigger.bind(str(hooks.trigger))
        sender.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                sender.sendto(b"full", str(hooks.trigger))
        hooks.run("ip-up")
    assert hooks.names() == {own_record("ip")}


def test_a_hook_removes_what_ended_long_ago(hooks: Hooks, process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    (ended, alive, lately) = (f"{process.pid}-1.ip", f"{os.getpid()}-1.ip", f"{process.pid}-2.ip")
    for name in (ended, alive, lately):
        (hooks.records / name).write_bytes(b"")
    for name in (ended, alive):
        os.utime(hooks.records / name, (1, 1))
    hooks.run("ip-up")
    assert hooks.names() == {alive, lately, own_record("ip")}


def test_a_hook_looks_for_what_ended_once_a_minute_at_most(
    hooks: Hooks, process: "subprocess.Popen[bytes]"
) -> None:
    process.kill()
    process.wait()
    ended, looked = hooks.records / f"{process.pid}-1.ip", hooks.records / "looked"
    while True:
        hooks.run("ip-up")
        minute = looked.read_text()
        ended.write_bytes(b"")
        os.utime(ended, (1, 1))
        hooks.run("ip-up")
        if looked.read_text() == minute:
            break
    assert ended.exists()
    looked.write_text("-1\n")
    hooks.run("ip-up")
    assert not ended.exists()


def test_shellcheck_has_nothing_to_say_of_the_hook() -> None:
    said = subprocess.run(["shellcheck", str(HOOK)], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout


# Signals


def test_the_first_request_is_a_goodbye_and_the_next_one_kills(
    process: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    clock = Clock(boot_id())
    source, session = ours(clock, tmp_path), session_of(clock, process.pid, start(process.pid))
    assert source.ends([session.key])[session.key].reason == "unknown"
    source.terminate(session)
    assert process.poll() is None
    assert source.ends([session.key])[session.key].reason == "admin_disconnect"
    source.terminate(session)
    assert process.wait(60) == -signal.SIGKILL
    source.terminate(session)


def test_a_request_a_minute_later_is_a_goodbye_again(
    process: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    clock = StillClock()
    source, session = ours(clock, tmp_path), session_of(clock, process.pid, start(process.pid))
    source.terminate(session)
    clock.now += 61
    assert source.ends([session.key])[session.key].reason == "unknown"
    source.terminate(session)
    assert process.poll() is None


def test_a_process_that_has_the_id_now_gets_no_signal(
    process: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    clock = Clock(boot_id())
    source, session = ours(clock, tmp_path), session_of(clock, process.pid, 1)
    source.terminate(session)
    source.terminate(session)
    assert process.poll() is None
    assert source.ends([session.key])[session.key].reason == "unknown"


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root, to become another")
def test_without_the_right_to_signal_the_request_is_refused(
    process: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    clock = Clock(boot_id())
    source, session = ours(clock, tmp_path), session_of(clock, process.pid, start(process.pid))
    os.setresuid(65534, 65534, 0)
    try:
        with pytest.raises(SourceRefused):
            source.terminate(session)
    finally:
        os.setresuid(0, 0, 0)
    assert source.ends([session.key])[session.key].reason == "unknown"


# The journal


def journal(folder: Path, script: str) -> SystemdJournal:
    program = folder / "journalctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return SystemdJournal([str(program)], seconds=5)


def entries(pid: int, *messages: str, at: int = 2) -> str:
    """A script that prints them as `journalctl --output=json` does, from a second on."""
    lines = (
        f'{{"MESSAGE":{message},"_PID":"{pid}","__REALTIME_TIMESTAMP":"{at}000000"}}' for message in messages
    )
    return "\n".join(f"echo '{line}'" for line in lines)


def test_lines_of_the_journal_are_text(tmp_path: Path) -> None:
    script = entries(7, '"Exit."', "[255,97]", "null")
    assert journal(tmp_path, script).lines({7: 1.5}) == {7: ["Exit.", "\ufffda", ""]}


def test_the_journal_is_read_once_for_several_processes(tmp_path: Path) -> None:
    script = f'echo "$*" >> {tmp_path}/arguments'
    found = journal(tmp_path, script).lines({139: 1_700_000_000.9, 150: 1_700_000_100.5})
    assert found == {139: [], 150: []}
    (arguments,) = (tmp_path / "arguments").read_text().splitlines()
    assert {"_PID=139", "_PID=150", "--since=@1699999998", "SYSLOG_IDENTIFIER=pppd"} <= set(arguments.split())


def test_lines_of_an_earlier_process_with_the_id_are_left_out(tmp_path: Path) -> None:
    script = "\n".join(
        [entries(7, '"old"', at=90), entries(7, '"new"', at=100), entries(8, '"other"', at=90)]
    )
    assert journal(tmp_path, script).lines({7: 100, 8: 90}) == {7: ["new"], 8: ["other"]}


def test_a_process_that_fills_the_log_does_not_hide_the_others(tmp_path: Path) -> None:
    flood, word = entries(7, "null"), entries(8, "null")
    script = f'case "$*" in *_PID=7*) for _ in $(seq 400); do {flood}; done ;; *) {word} ;; esac'
    found = journal(tmp_path, script).lines({7: 0, 8: 0})
    assert (len(found[7]), found[8]) == (400, [""])


@pytest.mark.parametrize(
    "script",
    [
        "exit 1",
        "echo '{'",
        "echo '[]'",
        "echo '{}'",
        entries(7, "[256]"),
        entries(8, "null"),
        entries(7, "null").replace("000000", "x"),
        "printf '\\377'",
        "exec sleep 60",
    ],
)
def test_a_journal_that_fails_is_unavailable(tmp_path: Path, script: str) -> None:
    with pytest.raises(SourceUnavailable):
        journal(tmp_path, script).lines({7: 0})


def test_without_journalctl_the_journal_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailable):
        SystemdJournal([str(tmp_path / "none")]).lines({7: 0})


def tail(folder: Path, script: str) -> JournalTail:
    journal(folder, script)
    return JournalTail(1_700_000_000.9, [str(folder / "journalctl")], seconds=5)


def test_a_tail_of_the_journal_goes_on_behind_its_last_line(tmp_path: Path) -> None:
    entry = (
        '{"MESSAGE":"Exit.","_PID":"7","_CMDLINE":"pppd pty","__REALTIME_TIMESTAMP":"2500000",'
        '"__CURSOR":"s=1;i=9"}'
    )
    script = f'echo "$*" >> {tmp_path}/arguments\ncase "$*" in *--since*) echo \'{entry}\' ;; esac'
    lines = tail(tmp_path, script)
    assert lines.read() == [LoggedLine(2.5, 7, "pppd pty", "Exit.")]
    assert lines.read() == lines.read() == []
    first, second, third = (tmp_path / "arguments").read_text().splitlines()
    assert {"--since=@1700000000", "SYSLOG_IDENTIFIER=pppd"} <= set(first.split())
    assert second == third
    assert "--after-cursor=s=1;i=9" in second.split()
    assert "--since" not in second


def test_a_tail_that_may_have_lost_lines_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lines = tail(tmp_path, f"yes '{entries(7, 'null').removeprefix('echo ').strip(chr(39))}' | head -n 4000")
    assert len(lines.read()) == 4000
    assert "pppd logs faster than the core reads" in caplog.text


@pytest.mark.parametrize("script", ["exit 1", "echo '{'", entries(7, "[256]"), "exec sleep 60"])
def test_a_tail_of_a_journal_that_fails_is_unavailable(tmp_path: Path, script: str) -> None:
    with pytest.raises(SourceUnavailable):
        tail(tmp_path, script).read()


# The server


#: The program of an access interface with its settings, a pppd that tells its arguments and does no more, and
#: programs that note each run. A second is a short one.
_SERVER = """
set -e
mount --make-rprivate /
for folder in /etc/ppp /run /var/lib; do mount -t tmpfs none "$folder"; done
# Of this network, and with these numbers of processes.
mount -t sysfs none /sys
mount -t proc none /proc
mkdir -p /var/lib/gateway-core/pppoe
echo 100.64.0.1 100.64.0.16 secrets bng1 > /var/lib/gateway-core/pppoe/trunk0.300
cp "$2" /etc/ppp/pppd
mkdir /run/bin
sleep=$(command -v sleep)
printf '#!/bin/sh\necho "$@" >> /run/arguments\n%s infinity\nexit\n' "$sleep" > /run/bin/pppd
printf '#!/bin/sh\necho >> /run/ip-runs\nexec %s "$@"\n' "$(command -v ip)" > /run/bin/ip
printf '#!/bin/sh\necho >> /run/sleep-runs\nexec %s 0.1\n' "$sleep" > /run/bin/sleep
chmod +x /run/bin/*
export RUNTIME_DIRECTORY=/run PATH="/run/bin:$PATH"
echo
exec "$1" trunk0.300
"""
_SERVER_PROGRAM, _PPPD_PROGRAM = HOOK.with_name("server"), HOOK.with_name("pppd")
_DISCOVERY, _PADI, _PADO, _PADR, _PADS = 0x8863, 0x09, 0x07, 0x19, 0x65


class Discovery:
    """Clients of PPPoE (RFC 2516 section 5) behind an access interface, with any MAC address, and its server:
    the first process in a namespace."""

    def __init__(self, line: socket.socket, server: int) -> None:
        self._line = line
        self._server = server
        self._files = Path(f"/proc/{server}/root/run")

    def await_server(self) -> None:
        self._line.settimeout(1)

        def is_there() -> bool:
            self.ask(bytes.fromhex("020000000001"))
            try:
                self.offer()
            except TimeoutError:
                return False
            return True

        wait_for("pppoe-server", is_there)
        self._line.settimeout(PATIENCE)

    def reload(self) -> None:
        pool = self._files / "trunk0.300.pool"
        before = pool.stat().st_mtime_ns
        self.signal_reload()
        wait_for("a new pppoe-server", lambda: pool.stat().st_mtime_ns != before)
        self.await_server()

    def give(self, first: str) -> None:
        """Has the server give away these addresses, such as `100.64.0.16/32`, from its next reload on."""
        settings = self._files.parent / "var/lib/gateway-core/pppoe/trunk0.300"
        settings.write_text(f"100.64.0.1 {first} secrets bng1\n")

    def signal_reload(self) -> None:
        """Has the server reload. It may have no address then."""
        os.kill(self._server, signal.SIGHUP)

    def runs(self, program: str) -> int:
        """How often a program ran."""
        notes = self._files / f"{program}-runs"
        return notes.stat().st_size if notes.exists() else 0

    def end_sessions(self) -> None:
        """Ends each pppd whose pppoe-server was replaced: it belongs to the first process then."""
        children = Path(f"/proc/{self._server}/task/{self._server}/children").read_text().split()
        for pid in map(int, children):
            if b"100.64.0.1:" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)

    def addresses(self) -> list[str]:
        """Those that pppd got for subscribers."""
        arguments = self._files / "arguments"
        return re.findall(r" 100\.64\.0\.1:(\S+) ", arguments.read_text() if arguments.exists() else "")

    def ask(self, mac: bytes) -> None:
        self._send(b"\xff" * 6, mac, _PADI, struct.pack("!HH", 0x0101, 0))

    def offer(self) -> tuple[bytes, bytes, bytes]:
        """The next one: the MAC addresses of server and client, and the tags to accept it with."""
        frame = self._receive(_PADO)
        tags, rest = b"", frame[20 : 20 + struct.unpack_from("!H", frame, 18)[0]]
        while rest:
            kind, length = struct.unpack_from("!HH", rest)
            # Service-Name and AC-Cookie.
            if kind in (0x0101, 0x0104):
                tags += rest[: 4 + length]
            rest = rest[4 + length :]
        return frame[6:12], frame[:6], tags

    def sign_on(self, mac: bytes) -> tuple[int, set[bytes]]:
        """The number of a new session, and the clients that got an offer until then."""
        self.ask(mac)
        offered: set[bytes] = set()
        while mac not in offered:
            server, client, tags = self.offer()
            offered.add(client)
        self._send(server, mac, _PADR, tags)
        return int(struct.unpack_from("!H", self._receive(_PADS), 16)[0]), offered

    def _send(self, destination: bytes, mac: bytes, code: int, tags: bytes) -> None:
        head = struct.pack("!HBBHH", _DISCOVERY, 0x11, code, 0, len(tags))
        self._line.send(destination + mac + head + tags)

    def _receive(self, code: int) -> bytes:
        while True:
            frame = self._line.recv(2048)
            if frame[15] == code:
                return frame


with_server = pytest.mark.skipif(
    not shutil.which("pppoe-server") or not can("ip link add v type veth peer name w"),
    reason="needs to be root, a kernel with veth, and pppoe-server",
)


@pytest.fixture
def discovery() -> Iterator[Discovery]:
    options = ("--mount", "--pid", "--fork", "--kill-child")
    with network_namespace():
        ip("link add trunk0.300 type veth peer name far0", "link set trunk0.300 up", "link set far0 up")
        # To any client there.
        ip("link set far0 promisc on")
        with (
            unshared(*options, "sh", "-c", _SERVER, "sh", str(_SERVER_PROGRAM), str(_PPPD_PROGRAM)) as pid,
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_DISCOVERY)) as line,
        ):
            line.bind(("far0", _DISCOVERY))
            (server,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            clients = Discovery(line, int(server))
            clients.await_server()
            yield clients


@with_server
def test_a_mac_address_has_four_sessions_and_leaves_the_others_to_others(discovery: Discovery) -> None:
    greedy, other = bytes.fromhex("02000000000a"), bytes.fromhex("02000000000b")
    sessions = {discovery.sign_on(greedy)[0] for _ in range(4)}
    discovery.ask(greedy)
    # It asks later, and has its offer: the first one gets none.
    fifth, offered = discovery.sign_on(other)
    assert greedy not in offered
    assert len({*sessions, fifth} - {0}) == 5


@with_server
def test_a_reload_gives_no_address_away_that_a_sign_on_has(discovery: Discovery) -> None:
    discovery.sign_on(bytes.fromhex("02000000000a"))
    wait_for("pppd", discovery.addresses)
    discovery.reload()
    discovery.sign_on(bytes.fromhex("02000000000b"))
    wait_for("another pppd", lambda: len(discovery.addresses()) == 2)
    first, second = discovery.addresses()
    assert first != second


@with_server
def test_a_server_without_a_free_address_runs_ip_once_and_goes_on_when_a_session_has_ended(
    discovery: Discovery,
) -> None:
    discovery.give("100.64.0.16/32")
    discovery.reload()
    discovery.sign_on(bytes.fromhex("02000000000a"))
    wait_for("pppd", discovery.addresses)
    before = discovery.runs("ip")
    discovery.signal_reload()
    wait_for("the reload", lambda: discovery.runs("ip") > before)
    waiting = discovery.runs("sleep")
    wait_for("some seconds", lambda: discovery.runs("sleep") >= waiting + 20)
    assert discovery.runs("ip") == before + 1
    discovery.end_sessions()
    discovery.await_server()
    discovery.sign_on(bytes.fromhex("02000000000b"))
    wait_for("another pppd", lambda: len(discovery.addresses()) == 2)
    assert set(discovery.addresses()) == {"100.64.0.16"}
