"""The hook of pppd in a shell, signals to real processes, journalctl, and a real pppoe-server."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from gateway_contract.core.sessions import SessionType
from gateway_core.gateways.linux.daemons.pppd import (
    PppdFailures,
    PppdJournal,
    parse_record,
    parse_start,
)
from gateway_core.gateways.linux.daemons.pppoe_server import PppoeServerSource
from gateway_core.gateways.linux.daemons.source import (
    SourceFailure,
    SourceRefused,
    SourceSession,
    SourceTraffic,
    SourceUnavailable,
)
from gateway_core.records.clock import Clock, read_boot_id
from tests.support.core_clock import StillClock
from tests.support.namespaces import can, ip, network_namespace, unshared
from tests.support.stack import wait_for

HOOK = Path(__file__).parents[2] / "packaging" / "pppoe" / "session-hook"


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
    return parse_start(Path(f"/proc/{pid}/stat").read_bytes())


@pytest.fixture
def process() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that takes no notice of SIGTERM."""
    code = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started
        started.kill()


@pytest.fixture
def ended(process: "subprocess.Popen[bytes]") -> int:
    """The id of a process that has ended."""
    process.kill()
    process.wait()
    return process.pid


def ours(clock: Clock, folder: Path) -> PppoeServerSource:
    said = ("pppd 2.4.9 started by root, uid 0", "Terminating on signal 15")
    log: Any = SimpleNamespace(read_processes=lambda since: dict.fromkeys(since, said))
    return PppoeServerSource(Mock(), log, folder, clock, lambda _: None)


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
    record = parse_record((hooks.records / own_record("ip")).read_bytes())
    assert (record.is_up, record.username, record.ip_address) == (True, "alice", "100.64.0.2")
    assert parse_record((hooks.records / own_record("ipv6")).read_bytes()).link_local == "fe80::1"


def test_a_hook_takes_any_user_name(hooks: Hooks) -> None:
    everything = "".join(chr(code) for code in range(1, 0x180))
    for name in (everything, "", "$(touch x)", "%s%n\\0", "a\nEVENT=ip-down", "-n", "\\"):
        hooks.run("ip-up", PEERNAME=name)
        assert parse_record((hooks.records / own_record("ip")).read_bytes()).username == name
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
    assert parse_record((hooks.records / name).read_bytes()).traffic == SourceTraffic(2, 1)
    assert earlier.read_bytes() == b""


def test_a_hook_of_an_unknown_process_or_another_pppd_records_nothing(hooks: Hooks, ended: int) -> None:
    hooks.run("ip-up", ended)
    hooks.run("ip-down", ended)
    hooks.run("ip-up", GATEWAY_SESSIONS="")
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
def test_a_session_that_comes_up_on_a_full_run_is_seen_and_none_begins_there(
    hooks: Hooks, sign_on: list[str]
) -> None:
    with unshared(*sign_on, ":") as pid:
        records = Path(f"/proc/{pid}/root{hooks.records}")
        (session,) = ours(Clock(read_boot_id()), records).list_sessions()
        assert (session.username, session.ip_address) == ("alice", "100.64.0.16")
        # The core is in the group.
        (record,) = records.glob(f"{pid}-*.ip")
        assert record.stat().st_mode & 0o777 == 0o640
    begun = subprocess.run(
        ["unshare", *sign_on, _FILL], capture_output=True, text=True, check=False, timeout=60
    )
    assert (begun.returncode, begun.stdout) == (1, "")
    assert "no PPPoE session for 100.64.0.16: no room for its records in " in begun.stderr


def test_a_hook_sends_a_datagram_without_text_of_the_subscriber_and_does_not_wait(hooks: Hooks) -> None:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as trigger,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
    ):
        trigger.settimeout(60)
        trigger.bind(str(hooks.trigger))
        hooks.run("ip-up", PEERNAME="alice")
        received = trigger.recv(1024)
        assert b"ip-up" in received
        assert b"alice" not in received
        # The core hangs.
        sender.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                sender.sendto(b"full", str(hooks.trigger))
        hooks.run("ipv6-up")
    assert hooks.names() == {own_record("ip"), own_record("ipv6")}


def test_a_hook_removes_what_ended_long_ago_once_a_minute_at_most(hooks: Hooks, ended: int) -> None:
    gone, alive, lately = (f"{ended}-1.ip", f"{os.getpid()}-1.ip", f"{ended}-2.ip")
    looked = hooks.records / "looked"

    def place() -> None:
        for name in (gone, alive, lately):
            (hooks.records / name).write_bytes(b"")
        for name in (gone, alive):
            os.utime(hooks.records / name, (1, 1))

    place()
    hooks.run("ip-up")
    assert hooks.names() == {alive, lately, own_record("ip")}
    minute = ""
    while looked.read_text() != minute:
        minute = looked.read_text()
        place()
        hooks.run("ip-up")
    assert gone in hooks.names()
    looked.write_text("-1\n")
    hooks.run("ip-up")
    assert gone not in hooks.names()


# Signals


def test_the_first_request_is_a_goodbye_and_the_next_one_within_a_minute_kills(
    process: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    clock = StillClock()
    source, session = ours(clock, tmp_path), session_of(clock, process.pid, start(process.pid))
    for _ in range(2):
        assert source.read_ends([session.key])[session.key].reason == "unknown"
        source.terminate(session)
        assert process.poll() is None
        assert source.read_ends([session.key])[session.key].reason == "admin_disconnect"
        clock.now += 61
    clock.now -= 61
    source.terminate(session)
    assert process.wait(60) == -signal.SIGKILL
    source.terminate(session)


@as_root
def test_another_process_gets_no_signal_and_without_the_right_to_signal_the_request_is_refused(
    process: "subprocess.Popen[bytes]", tmp_path: Path
) -> None:
    clock = Clock(read_boot_id())
    source, earlier = ours(clock, tmp_path), session_of(clock, process.pid, 1)
    session = session_of(clock, process.pid, start(process.pid))
    for _ in range(2):
        source.terminate(earlier)
    os.setresuid(65534, 65534, 0)
    try:
        with pytest.raises(SourceRefused):
            source.terminate(session)
    finally:
        os.setresuid(0, 0, 0)
    assert process.poll() is None
    for each in (earlier, session):
        assert source.read_ends([each.key])[each.key].reason == "unknown"


# The journal


def journal(folder: Path, script: str, seconds: float = 60) -> PppdJournal:
    program = folder / "journalctl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return PppdJournal([str(program)], seconds)


def entries(pid: int, *messages: str, at: int = 2) -> str:
    """A script that prints them as `journalctl --output=json` does, from a second on."""
    lines = (
        f'{{"MESSAGE":{message},"_PID":"{pid}","__REALTIME_TIMESTAMP":"{at}000000"}}' for message in messages
    )
    return "\n".join(f"echo '{line}'" for line in lines)


def test_the_journal_is_read_once_for_several_processes(tmp_path: Path) -> None:
    script = f'echo "$*" >> {tmp_path}/arguments'
    found = journal(tmp_path, script).read_processes({139: 1_700_000_000.9, 150: 1_700_000_100.5})
    assert found == {139: [], 150: []}
    (arguments,) = (tmp_path / "arguments").read_text().splitlines()
    assert {"_PID=139", "_PID=150", "--since=@1699999998", "SYSLOG_IDENTIFIER=pppd"} <= set(arguments.split())


def test_lines_of_the_journal_are_text_without_those_of_an_earlier_process(tmp_path: Path) -> None:
    script = "\n".join(
        [
            entries(7, '"old"', at=90),
            entries(7, '"Exit."', "[255,97]", "null", at=100),
            entries(8, '"other"', at=90),
        ]
    )
    found = journal(tmp_path, script).read_processes({7: 100, 8: 90})
    assert found == {7: ["Exit.", "\ufffda", ""], 8: ["other"]}


def test_a_process_that_fills_the_log_does_not_hide_the_others(tmp_path: Path) -> None:
    flood, word = entries(7, "null"), entries(8, "null")
    script = f'case "$*" in *_PID=7*) for _ in $(seq 400); do {flood}; done ;; *) {word} ;; esac'
    found = journal(tmp_path, script).read_processes({7: 0, 8: 0})
    assert (len(found[7]), found[8]) == (400, [""])


@pytest.mark.parametrize(
    "script",
    [
        "exit 1",
        "echo '{'",
        entries(7, "[256]"),
        entries(8, "null"),
        entries(7, "null").replace("000000", "x"),
        "printf '\\377'",
        "exec sleep 60",
    ],
)
def test_a_journal_that_fails_is_unavailable(tmp_path: Path, script: str) -> None:
    with pytest.raises(SourceUnavailable):
        journal(tmp_path, script, seconds=1).read_processes({7: 0})
    if script != entries(8, "null"):
        with pytest.raises(SourceUnavailable):
            journal(tmp_path, script, seconds=1).read_lines("--since=@1")
    (tmp_path / "journalctl").unlink()
    with pytest.raises(SourceUnavailable):
        PppdJournal([str(tmp_path / "journalctl")]).read_processes({7: 0})


def test_failed_sign_ons_are_read_behind_the_last_line(tmp_path: Path) -> None:
    entry = (
        '{"MESSAGE":"LCP: timeout sending Config-Requests","_PID":"7","__REALTIME_TIMESTAMP":"2500000",'
        '"_CMDLINE":"pppd pty pppoe -I trunk0.7 -e 5:02:00:00:00:00:0a","__CURSOR":"s=1;i=9"}'
    )
    script = f'echo "$*" >> {tmp_path}/arguments\ncase "$*" in *--since*) echo \'{entry}\' ;; esac'
    failures = PppdFailures("pppoe-server", journal(tmp_path, script), 1_700_000_000.9)
    assert failures.read() == [SourceFailure(2.5, "no_response", None, "02:00:00:00:00:0a", "trunk0.7")]
    assert failures.read() == failures.read() == []
    first, second, third = (tmp_path / "arguments").read_text().splitlines()
    assert {"--since=@1700000000", "SYSLOG_IDENTIFIER=pppd"} <= set(first.split())
    assert second == third
    assert "--after-cursor=s=1;i=9" in second.split()
    assert "--since" not in second


def test_a_log_that_may_have_lost_lines_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script = f"yes '{entries(7, 'null').removeprefix('echo ').strip(chr(39))}' | head -n 4000"
    assert len(journal(tmp_path, script).read_lines("--since=@0")) == 4000
    assert "pppd logs faster than the core reads" in caplog.text


# The server


#: The program of an access interface with its settings, and a pppd that tells its arguments and does no more.
#: A second is a short one.
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
printf '#!/bin/sh\nexec %s 0.1\n' "$sleep" > /run/bin/sleep
chmod +x /run/bin/*
export RUNTIME_DIRECTORY=/run PATH="/run/bin:$PATH"
echo
exec "$1" trunk0.300
"""
_SERVER_PROGRAM, _PPPD_PROGRAM = HOOK.with_name("server"), HOOK.with_name("pppd")
#: A client of the package, before its MAC address.
_CLIENT = ["pppoe", "-I", "far0", "-H"]


class Discovery:
    """Clients of PPPoE behind an access interface, with any MAC address, and its server: the first process in
    a namespace."""

    def __init__(self, server: int) -> None:
        self._server = server
        self._files = Path(f"/proc/{server}/root/run")

    def await_server(self) -> None:
        def is_there() -> bool:
            asked = [*_CLIENT, "02:00:00:00:00:01", "-A", "-t", "1"]
            return b"Concentrator" in subprocess.run(asked, capture_output=True, check=False).stdout

        wait_for("pppoe-server", is_there)

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

    def end_sessions(self) -> bool:
        """Ends each pppd whose pppoe-server was replaced: it belongs to the first process then. False if
        there was none."""
        found = False
        for pid in Path(f"/proc/{self._server}/task/{self._server}/children").read_text().split():
            # Others may have ended.
            with suppress(FileNotFoundError):
                if b"100.64.0.1:" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(int(pid), signal.SIGKILL)
                    found = True
        return found

    def addresses(self) -> list[str]:
        """Those that pppd got for subscribers."""
        arguments = self._files / "arguments"
        return re.findall(r" 100\.64\.0\.1:(\S+) ", arguments.read_text() if arguments.exists() else "")

    def sign_on(self, mac: str) -> int:
        """The number of a new session."""
        done = subprocess.run([*_CLIENT, mac, "-d", "-t", "60"], stdout=subprocess.PIPE, check=True)
        return int(done.stdout.partition(b":")[0])


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
        programs = (str(_SERVER_PROGRAM), str(_PPPD_PROGRAM))
        with unshared(*options, "sh", "-c", _SERVER, "sh", *programs) as pid:
            (server,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            clients = Discovery(int(server))
            clients.await_server()
            yield clients


@with_server
def test_a_mac_address_has_four_sessions_and_leaves_the_others_to_others(
    discovery: Discovery, tmp_path: Path
) -> None:
    greedy, log = "02:00:00:00:00:0a", tmp_path / "log"
    sessions = {discovery.sign_on(greedy) for _ in range(4)}
    with subprocess.Popen([*_CLIENT, greedy, "-d", "-t", "600", "-D", str(log)]) as waiting:
        wait_for("its request", lambda: log.exists() and "PADI" in log.read_text())
        # It asks later, and has its session: the first one gets no offer.
        fifth = discovery.sign_on("02:00:00:00:00:0b")
        assert waiting.poll() is None
        waiting.kill()
    assert len({*sessions, fifth} - {0}) == 5
    # A reload gives no address away that a sign-on has.
    discovery.reload()
    discovery.sign_on("02:00:00:00:00:0c")
    wait_for("six of pppd", lambda: len(discovery.addresses()) == 6)
    assert len(set(discovery.addresses())) == 6


@with_server
def test_a_server_without_a_free_address_goes_on_when_a_session_has_ended(discovery: Discovery) -> None:
    discovery.give("100.64.0.16/32")
    discovery.reload()
    discovery.sign_on("02:00:00:00:00:0a")
    wait_for("pppd", discovery.addresses)
    discovery.signal_reload()
    wait_for("the end of the session", discovery.end_sessions)
    discovery.await_server()
    discovery.sign_on("02:00:00:00:00:0b")
    wait_for("another pppd", lambda: len(discovery.addresses()) == 2)
    assert set(discovery.addresses()) == {"100.64.0.16"}
