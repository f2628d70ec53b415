"""The audit log of a running gateway, forwarded to Debian's rsyslog over TLS and to the journal: each record
once and in order, whatever is killed meanwhile."""

import json
import os
import re
import shutil
import signal
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
import requests

from gateway_api.audit.forward import Connect, Forwarder, make_deliver
from gateway_api.audit.log import AuditDatabase
from gateway_api.hub.sender import open_tls
from gateway_contract.base.certificate import load_pair
from tests.support.audit import AuditedGateway, texts
from tests.support.prometheus import samples
from tests.support.rsyslog import Rsyslog
from tests.support.sse import master_of
from tests.support.stack import PATIENCE, free_port, make_state, running_stack, wait_for

pytestmark = pytest.mark.skipif(shutil.which("rsyslogd") is None, reason="needs rsyslog")


def make_rsyslog(folder: Path) -> Rsyslog:
    state = folder / "state"
    make_state(state)
    return Rsyslog(folder / "rsyslog", state / "certificate.pem", state / "key.pem")


@pytest.fixture
def rsyslog(tmp_path: Path) -> Iterator[Rsyslog]:
    made = make_rsyslog(tmp_path)
    yield made
    made.kill()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AuditedGateway, Rsyslog]]:
    """A running gateway, and a running receiver."""
    rsyslog = make_rsyslog(tmp_path_factory.mktemp("site"))
    state = rsyslog.certificate.parent
    rsyslog.start()
    with running_stack(state, SSL_CERT_FILE=rsyslog.certificate) as (api, process):
        yield AuditedGateway(api, state, process), rsyslog
    rsyslog.kill()


def commit(gateway: AuditedGateway, destination: str | None) -> None:
    edit = {"path": "api.audit.forward", "value": destination}
    assert gateway.ask("POST", "/system/config/set", json=edit).ok
    assert gateway.ask("POST", "/system/config/commit", json={}).ok


def change(gateway: AuditedGateway, times: int = 1) -> None:
    """Send changes that each have a record, unless the API is killed."""
    for _ in range(times):
        with suppress(requests.ConnectionError):
            gateway.ask("DELETE", "/subscribers/999999")


def list_ids(gateway: AuditedGateway) -> list[str]:
    """Return the ids in the audit log of users, oldest first."""
    ids = [str(record["id"]) for record in gateway.records(limit=1000)]
    return [id for id in reversed(ids) if id.startswith("known-")]


def wait_for_all(gateway: AuditedGateway, rsyslog: Rsyslog) -> list[str]:
    """Wait until the receiver has the newest record, and return the ids of all that it has."""
    newest = list_ids(gateway)[-1]
    wait_for("the newest record", lambda: newest in rsyslog.ids())
    return rsyslog.ids()


def test_a_commit_turns_forwarding_on_and_off_without_a_restart(
    site: tuple[AuditedGateway, Rsyslog],
) -> None:
    gateway, rsyslog = site
    commit(gateway, rsyslog.destination)
    change(gateway, 5)
    assert wait_for_all(gateway, rsyslog) == list_ids(gateway)
    of_api = {record["id"]: record for record in gateway.records(limit=1000)}
    assert rsyslog.records() == [of_api[id] for id in rsyslog.ids()]
    assert {message["program"] for message in rsyslog.messages()} == {"gateway-api"}
    assert {message["host"] for message in rsyslog.messages()} == {socket.gethostname()}
    # What the example writes.
    written = (rsyslog.folder / "gateway-audit.log").read_text().splitlines()
    assert written == [f"{message['host']} {message['text']}" for message in rsyslog.messages()]
    counts = samples(gateway.api)
    assert counts["gateway_api_audit_forwarded_total"] == len(written)
    assert counts["gateway_api_audit_forward_lost_total"] == 0
    assert find_health(gateway) == (
        "ok",
        "The receiver of the audit log has confirmed all that was sent to it.",
    )
    commit(gateway, None)
    wait_for("the end", lambda: not (gateway.state / "audit" / "forward.json").exists())
    before = rsyslog.ids()
    change(gateway)
    time.sleep(3)
    assert rsyslog.ids() == before
    assert find_health(gateway) is None
    assert "gateway_api_audit_forwarded_total" not in samples(gateway.api)


def test_health_says_since_when_the_receiver_is_away(site: tuple[AuditedGateway, Rsyslog]) -> None:
    gateway, _ = site
    commit(gateway, f"tls://localhost:{free_port()}")
    state, message = wait_for("the failure", lambda: is_degraded(gateway) and find_health(gateway))
    assert state == "degraded"
    assert re.fullmatch(
        r"The receiver of the audit log has confirmed nothing since 20\S+Z: .*Connection refused\.", message
    )
    commit(gateway, None)
    wait_for("the end", lambda: find_health(gateway) is None)


def find_health(gateway: AuditedGateway) -> tuple[str, str] | None:
    dependencies = gateway.api.get("/system/health/detail")["dependencies"]
    found = [(one["state"], one["message"]) for one in dependencies if one["name"] == "audit_forward"]
    return found[0] if found else None


def is_degraded(gateway: AuditedGateway) -> bool:
    found = find_health(gateway)
    return found is not None and found[0] == "degraded"


def test_kills_of_the_receiver_and_of_the_api_lose_no_record(
    site: tuple[AuditedGateway, Rsyslog],
) -> None:
    gateway, rsyslog = site
    before = rsyslog.ids()
    commit(gateway, rsyslog.destination)
    for turn in range(4):
        change(gateway, 20)
        # With records on the way: a stopped rsyslog reads nothing, and its kernel accepts bytes.
        rsyslog.stop()
        change(gateway, 20)
        if turn % 2:
            time.sleep(1.5)
            rsyslog.kill()
        # The arbiter forks a worker while it forwards.
        os.kill(gateway.workers[0], signal.SIGKILL)
        change(gateway, 5)
        arbiter = master_of(gateway.process)
        os.kill(arbiter, signal.SIGKILL)
        if turn % 2:
            rsyslog.start()
        else:
            rsyslog.signal(signal.SIGCONT)
        wait_for("the next arbiter", lambda: is_served_anew(gateway, arbiter))
    change(gateway)
    ids = wait_for_all(gateway, rsyslog)[len(before) :]
    written = list_ids(gateway)
    assert len(written) > 60
    # Forwarding began anew, with the records of the last seconds.
    assert list(dict.fromkeys(ids)) == written[written.index(ids[0]) :]
    # Repeats are whole batches: each begins again in order.
    descents = sum(int(one.split("-")[1]) >= int(other.split("-")[1]) for one, other in pairwise(ids))
    assert descents <= 8, ids


def is_served_anew(gateway: AuditedGateway, former_arbiter: int) -> bool:
    """Return True if another arbiter has workers, and the API responds. Workers of a killed arbiter serve for
    a moment."""
    try:
        arbiter = master_of(gateway.process)
        return (
            arbiter != former_arbiter
            and bool(gateway.workers)
            and gateway.api.send("GET", "/health", None).ok
        )
    except (OSError, ValueError):
        return False


class Forwarding:
    """A trail, and its forwarder to rsyslog, at a time that only `run_for` changes."""

    def __init__(self, folder: Path, rsyslog: Rsyslog) -> None:
        folder.mkdir()
        self.trail = AuditDatabase(folder, "known", 1 << 20)
        self.now = time.time()
        own = partial(load_pair, certificate=rsyslog.certificate, key=rsyslog.key)
        self.connect: Connect = partial(open_tls, load_pair=own)
        self.destination = rsyslog.destination
        self.forwarder = Forwarder(
            lambda: {"gateway-api": [self.trail]},
            folder / "forward.json",
            make_deliver(lambda host, port: self.connect(host, port), lambda: "bng1"),
            lambda: self.now,
        )
        self.run_for(0)

    def append(self, *names: object) -> None:
        self.trail.append(texts(*names, at=self.now))

    def run_for(self, seconds: float) -> None:
        class Over(BaseException):
            pass

        end = self.now + seconds

        def sleep(wait: float) -> None:
            self.now += wait
            if self.now >= end:
                raise Over

        with pytest.raises(Over):
            self.forwarder.run(lambda: self.destination, sleep)


@pytest.fixture
def forwarding(tmp_path: Path, rsyslog: Rsyslog, monkeypatch: pytest.MonkeyPatch) -> Forwarding:
    # OpenSSL reads it in place of the certificates of the system.
    monkeypatch.setenv("SSL_CERT_FILE", str(rsyslog.certificate))
    return Forwarding(tmp_path / "audit", rsyslog)


def test_after_a_day_without_the_receiver_all_records_arrive_once(
    forwarding: Forwarding, rsyslog: Rsyslog
) -> None:
    rsyslog.start()
    forwarding.append("before")
    forwarding.run_for(1)
    rsyslog.kill()
    for hour in range(24):
        forwarding.append(hour, "another")
        forwarding.run_for(3600)
    rsyslog.start()
    forwarding.run_for(60)
    assert rsyslog.ids() == [f"known-{number}" for number in range(1, 50)]


def test_what_does_not_fit_in_the_audit_log_is_counted_in_the_stream(
    forwarding: Forwarding, rsyslog: Rsyslog
) -> None:
    for _ in range(20):
        forwarding.append(*range(100))
        forwarding.run_for(60)
    rsyslog.start()
    forwarding.run_for(60)
    gap, first, *_, last = rsyslog.records()
    lost_count = int(first["id"].split("-")[1]) - 1
    assert lost_count > 500
    assert gap["action"] == "audit.gap"
    assert gap["message"].startswith(f"{lost_count} records up to known-{lost_count} were dropped")
    assert last["id"] == "known-2000"
    assert len(rsyslog.ids()) == 1 + 2000 - lost_count


def test_records_that_a_killed_receiver_has_not_read_are_sent_again(
    forwarding: Forwarding, rsyslog: Rsyslog
) -> None:
    rsyslog.start()
    connect = forwarding.connect

    def connect_to_stopped(host: str, port: int) -> ssl.SSLSocket:
        connection = connect(host, port)
        # Its kernel accepts bytes that it never reads.
        rsyslog.stop()
        threading.Timer(1, rsyslog.kill).start()
        return connection

    forwarding.connect = connect_to_stopped
    forwarding.append("a", "b")
    assert not forwarding.forwarder.forward_batch(forwarding.destination)
    forwarding.connect = connect
    rsyslog.start()
    assert forwarding.forwarder.forward_batch(forwarding.destination)
    assert rsyslog.ids() == ["known-1", "known-2"]


@pytest.mark.parametrize(
    ("ending", "is_confirmed"), [("close_notify", True), ("reset", False), ("nothing", False)]
)
def test_only_an_orderly_end_of_the_connection_confirms_a_batch(
    forwarding: Forwarding, rsyslog: Rsyslog, ending: str, is_confirmed: bool
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(rsyslog.certificate, rsyslog.key)
    received: list[bytes] = []
    over = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with context.wrap_socket(connection, server_side=True) as secured:
            while data := secured.recv(1 << 16):
                received.append(data)
            match ending:
                case "close_notify":
                    secured.unwrap().close()
                case "reset":
                    secured.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                case "nothing":
                    over.wait(PATIENCE)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        forwarding.append("a")
        destination = f"tls://localhost:{listener.getsockname()[1]}"
        assert forwarding.forwarder.forward_batch(destination) == is_confirmed
        over.set()
        server.join(PATIENCE)
    # Octet counting: RFC 5425 section 4.3.
    length, _, message = b"".join(received).partition(b" ")
    assert (int(length), message[:6]) == (len(message), b"<109>1")


def test_a_receiver_that_requires_a_certificate_gets_that_of_the_api(
    forwarding: Forwarding, rsyslog: Rsyslog, tmp_path: Path
) -> None:
    strict = Rsyslog(tmp_path / "strict", rsyslog.certificate, rsyslog.key, "x509/certvalid")
    strict.start()
    try:
        forwarding.destination = strict.destination
        forwarding.append("a")
        forwarding.run_for(1)
        assert strict.ids() == ["known-1"]
    finally:
        strict.kill()


@pytest.mark.parametrize("fault", ["another authority", "another name"])
def test_a_receiver_without_a_valid_certificate_gets_nothing(
    forwarding: Forwarding,
    rsyslog: Rsyslog,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: str,
) -> None:
    rsyslog.start()
    if fault == "another authority":
        monkeypatch.delenv("SSL_CERT_FILE")
    else:
        forwarding.destination = rsyslog.destination.replace("localhost", "[::ffff:127.0.0.1]")
    forwarding.append("a")
    forwarding.run_for(1)
    assert rsyslog.ids() == []
    assert "certificate verify failed" in caplog.text


def test_the_journal_gets_each_record_with_its_id(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    folder.mkdir()
    trail = AuditDatabase(folder, "known", 1 << 20)
    path = tmp_path / "journal"

    def connect(host: str, port: int) -> ssl.SSLSocket:
        raise AssertionError

    forwarder = Forwarder(
        lambda: {"gateway-api": [trail]}, folder / "forward.json", make_deliver(connect, str, path)
    )
    trail.append(texts("a", "b", at=time.time()))
    # Without journald, they wait.
    assert not forwarder.forward_batch("journal")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(path))
        assert forwarder.forward_batch("journal")
        entries = [journal.recv(1 << 16).decode() for _ in range(2)]
    fields = [dict(line.split("=", 1) for line in entry.splitlines()) for entry in entries]
    assert [each["GATEWAY_AUDIT_ID"] for each in fields] == ["known-1", "known-2"]
    assert [json.loads(each["MESSAGE"])["request_id"] for each in fields] == ["a", "b"]
