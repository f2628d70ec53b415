"""Webhooks: registered over the API, delivered to real receivers, whatever these do, and whatever happens to
the processes of the service."""

import base64
import json
import os
import random
import re
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
import requests
import standardwebhooks
from prometheus_client.parser import text_string_to_metric_families

from gateway_api.hub.delivery_queue import MOST_WAITING
from gateway_api.hub.message import WebhookMessage
from gateway_api.hub.sender import TIMEOUT, AttemptResult, Sender
from tests.support.prometheus import scrape
from tests.support.receivers import (
    OK,
    Fast,
    Received,
    Receiver,
    Rude,
    answer,
    close,
    flood,
    hang,
    reset,
    say,
    trickle,
)
from tests.support.stack import (
    Api,
    core_of,
    descendants,
    free_port,
    running_api,
    running_core,
    running_stack,
    wait_for,
)

pytestmark = pytest.mark.slow

GUIDE = (Path(__file__).parents[2] / "docs/how-to/webhooks.md").read_text()
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BOTH = ["session.up", "session.down"]
DOWN = ["session.down"]
#: Of a webhook that was registered, and to which no attempt failed.
WELL = {"paused_until": None, "origin": "registered", "state": "well", "failing_since": None}
Process = "subprocess.Popen[bytes]"


@dataclass
class Gateway:
    """A running stack in which nothing happens by itself; each disconnect is one event."""

    api: Api
    process: Process
    state: Path
    _ids: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def arbiter(self) -> int:
        """The process that hosts the hub."""
        return arbiter_of(self.process)

    def disconnect(self) -> int:
        """Ends one session; its id."""
        id = next(self._ids)
        answered = self.api.send("DELETE", f"/subscribers/{id}")
        assert answered.status_code == 200, answered.text
        return id

    @contextmanager
    def webhook(self, url: str, events: list[str] = DOWN, secret: str | None = None) -> Iterator[str]:
        """A registration until the end of the block; its id."""
        id = register(self.api, url, events, secret)
        try:
            yield id
        finally:
            self.api.send("DELETE", f"/webhooks/{id}")

    def test(self, id: str) -> str:
        """Asks for a test message; its id."""
        answered = self.api.send("POST", f"/webhooks/{id}/test")
        assert answered.status_code == 200, answered.text
        message: str = answered.json()["data"]["message_id"]
        return message

    def log(self, id: str, entries: int = 0, timeout: float = 15) -> list[dict[str, Any]]:
        """The delivery log, newest first, as soon as it has so many entries."""

        def read() -> Any:
            return self.api.get(f"/webhooks/{id}/deliveries")["deliveries"]

        if entries:
            wait_for(f"{entries} entries in the log", lambda: len(read()) >= entries, timeout)
        found: list[dict[str, Any]] = read()
        return found

    def metrics(self) -> dict[str, float]:
        return metrics(self.api)


def register(api: Api, url: str, events: list[str], secret: str | None = None) -> str:
    body = {"url": url, "events": events, **({"secret": secret} if secret else {})}
    answered = api.send("POST", "/webhooks", json=body)
    assert answered.status_code == 201, answered.text
    id: str = answered.json()["data"]["id"]
    return id


def arbiter_of(process: Process) -> int:
    """The gunicorn process that a stack started, not one of its workers."""
    for pid in descendants(process.pid):
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if int(stat[1]) == process.pid and b"gunicorn" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise AssertionError("there is no arbiter")


def memory(pid: int, what: str = "VmRSS") -> float:
    """MB."""
    (line,) = re.findall(rf"^{what}:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return int(line) / 1024


def metrics(api: Api) -> dict[str, float]:
    """The samples about webhooks, without their common prefix."""
    text = scrape(api).text
    return {
        sample.name.removeprefix("gateway_api_webhook") + "".join(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("gateway_api_webhook")
    }


def verified(request: Received, secret: str = SECRET) -> Any:
    """The body, if the signature is right. The package raises if not."""
    return standardwebhooks.Webhook(secret).verify(request.body, dict(request.headers))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    state = tmp_path_factory.mktemp("webhooks")
    trusted = state / "certificate.pem"
    with running_stack(state, sessions=2000, GATEWAY_API_WEBHOOK_CERTIFICATES=trusted) as (api, process):
        yield Gateway(api, process, state)


@pytest.fixture(scope="module")
def api(gateway: Gateway) -> Api:
    return gateway.api


@pytest.fixture(scope="module")
def server_tls(gateway: Gateway) -> ssl.SSLContext:
    """What a receiver needs to be trusted by the gateway."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(gateway.state / "certificate.pem", gateway.state / "key.pem")
    return context


# Registration.


def test_a_registration_is_answered_with_its_record_and_its_place(api: Api) -> None:
    body = {"url": "https://example.com/hook?a=b", "events": BOTH}
    answered = api.send("POST", "/webhooks", json=body)
    assert answered.status_code == 201
    record = answered.json()["data"]
    assert answered.json() == {"status": "ok", "data": {"id": record["id"], **body, **WELL}}
    assert re.fullmatch(r"wh_[0-9a-f]{16}", record["id"])
    assert answered.headers["Location"].endswith(f"/api/v1/webhooks/{record['id']}")
    assert api.get(f"/webhooks/{record['id']}") == record
    assert record in api.get("/webhooks")["webhooks"]
    deleted = api.send("DELETE", f"/webhooks/{record['id']}")
    assert (deleted.status_code, list(deleted.json()["data"])) == (200, ["message"])
    assert record["id"] in deleted.json()["data"]["message"]
    assert record not in api.get("/webhooks")["webhooks"]


def test_webhooks_are_listed_with_their_count_the_oldest_first(gateway: Gateway) -> None:
    assert gateway.api.get("/webhooks") == {"webhooks": [], "count": 0}
    with (
        gateway.webhook("http://example.com/1") as first,
        gateway.webhook("http://example.com/2", BOTH) as second,
    ):
        assert gateway.api.get("/webhooks") == {
            "webhooks": [
                {"id": first, "url": "http://example.com/1", "events": DOWN, **WELL},
                {"id": second, "url": "http://example.com/2", "events": BOTH, **WELL},
            ],
            "count": 2,
        }


@pytest.mark.parametrize("place", ["", "/deliveries"])
def test_a_webhook_that_is_not_there_cannot_be_read(api: Api, place: str) -> None:
    answered = api.send("GET", f"/webhooks/wh_0000000000000000{place}")
    assert answered.status_code == 404
    assert answered.json() == {"status": "error", "message": "No such webhook"}


@pytest.mark.parametrize(("method", "place"), [("DELETE", ""), ("POST", "/test")])
def test_a_webhook_that_is_not_there_cannot_be_deleted_or_tested(api: Api, method: str, place: str) -> None:
    answered = api.send(method, f"/webhooks/wh_0000000000000000{place}")
    assert answered.status_code == 404
    assert answered.json() == {"status": "error", "message": "No such webhook"}


def test_a_webhook_is_deleted_once(gateway: Gateway) -> None:
    with gateway.webhook("http://example.com/") as id:
        assert gateway.api.send("DELETE", f"/webhooks/{id}").status_code == 200
        assert gateway.api.send("DELETE", f"/webhooks/{id}").status_code == 404


def test_the_101st_registration_is_refused_until_one_goes(gateway: Gateway) -> None:
    with ExitStack() as stack:
        ids = [stack.enter_context(gateway.webhook(f"http://example.com/{n}")) for n in range(100)]
        body = {"url": "http://example.com/", "events": DOWN}
        refused = gateway.api.send("POST", "/webhooks", json=body)
        assert refused.status_code == 409
        assert refused.json()["status"] == "error"
        assert gateway.api.get("/webhooks")["count"] == 100
        gateway.api.send("DELETE", f"/webhooks/{ids[0]}")
        stack.enter_context(gateway.webhook("http://example.com/"))


URL = "http://example.com/"


def test_a_registration_that_is_not_right_is_refused_with_the_place(api: Api) -> None:
    for body, path in (
        ({}, "url"),
        ({"events": DOWN}, "url"),
        ({"url": URL}, "events"),
        ({"url": URL, "events": []}, "events"),
        ({"url": URL, "events": None}, "events"),
        ({"url": URL, "events": "session.down"}, "events"),
        ({"url": URL, "events": {"session.down": 1}}, "events"),
        ({"url": URL, "events": ["session.down", "session.down"]}, "events"),
        ({"url": URL, "events": ["session.down", "session_up"]}, "events[1]"),
        ({"url": URL, "events": ["webhook.test"]}, "events[0]"),
        ({"url": URL, "events": [1]}, "events[0]"),
        ({"url": URL, "events": [["session.down"]]}, "events[0]"),
        ({"url": URL, "events": DOWN, "id": "wh_1"}, "id"),
        ({"url": 1, "events": DOWN}, "url"),
        ({"url": None, "events": DOWN}, "url"),
        ({"url": "example.com", "events": DOWN}, "url"),
        ({"url": "http://169.254.169.254/", "events": DOWN}, "url"),
        ({"url": "http://a:b@example.com/", "events": DOWN}, "url"),
        ({"url": URL, "events": DOWN, "secret": ""}, "secret"),
        ({"url": URL, "events": DOWN, "secret": "not base64!"}, "secret"),
        ({"url": URL, "events": DOWN, "secret": base64.b64encode(b"a" * 23).decode()}, "secret"),
        ({"url": URL, "events": DOWN, "secret": base64.b64encode(b"a" * 65).decode()}, "secret"),
        ({"url": URL, "events": DOWN, "secret": 1}, "secret"),
    ):
        before = api.get("/webhooks")
        answered = api.send("POST", "/webhooks", json=body)
        assert answered.status_code == 400, answered.text
        assert path.replace("[", ".").rstrip("]") in [
            error["path"].replace("[", ".").rstrip("]") for error in answered.json()["errors"]
        ]
        assert api.get("/webhooks") == before


@pytest.mark.parametrize("size", [24, 64])
@pytest.mark.parametrize("prefix", ["", "whsec_"])
def test_a_secret_is_base64_of_24_to_64_bytes(gateway: Gateway, size: int, prefix: str) -> None:
    secret = prefix + base64.b64encode(secrets.token_bytes(size)).decode()
    with Receiver() as receiver, gateway.webhook(receiver.url, secret=secret) as id:
        gateway.test(id)
        wait_for("the test", lambda: receiver.received, 5)
        verified(receiver.received[0], secret)


def test_the_receiver_of_the_guide_runs_under_plain_python_and_verifies_signatures(
    gateway: Gateway,
) -> None:
    (source,) = re.findall(r"^cat > receiver.py << 'END'\n(.*?)^END$", GUIDE, re.MULTILINE | re.DOTALL)
    # As the guide makes one: openssl rand -base64 32
    secret = base64.b64encode(secrets.token_bytes(32)).decode()
    port = free_port()
    assert '("127.0.0.1", 9000)' in source
    # -I: nothing but Python's own library.
    command = ["/usr/bin/python3", "-I", "-c", source.replace("9000", str(port))]
    with subprocess.Popen(
        command,
        env={**os.environ, "SECRET": secret},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as receiver:
        assert receiver.stdout is not None
        try:
            url = f"http://127.0.0.1:{port}/hook"
            assert receiver.stdout.readline() == "listening\n"
            with gateway.webhook(url, secret=secret) as id:
                gateway.test(id)
                assert receiver.stdout.readline().startswith('genuine {"event":"webhook.test"')
            assert requests.post(url, data=b"{}", timeout=5).status_code == 401
            assert receiver.stdout.readline() == "forged {}\n"
        finally:
            receiver.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_tls_receiver_that_closes_each_connection_waits_for_no_acknowledgement(
    server_tls: ssl.SSLContext, gateway: Gateway
) -> None:
    closing = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with Receiver(closing, tls=server_tls) as receiver:
        sender = Sender(receiver.url, None, list, str(gateway.state / "certificate.pem"))
        outcomes = [sender.send(WebhookMessage(f"m-{number}", "session.up", b"{}")) for number in range(10)]
        sender.close()
    assert all(outcome.delivered for outcome in outcomes)
    # The best of them: a busy machine adds to each, and a delayed acknowledgement is 40 ms always.
    assert min(outcome.seconds for outcome in outcomes) < 0.03


def test_an_operator_may_read_webhooks_and_change_none(gateway: Gateway) -> None:
    api = gateway.api
    with gateway.webhook("http://example.com/") as id:
        for place in ("", f"/{id}", f"/{id}/deliveries"):
            assert api.send("GET", f"/webhooks{place}", "operator").status_code == 200
        for method, place in (("POST", ""), ("DELETE", f"/{id}"), ("POST", f"/{id}/test")):
            answered = api.send(method, f"/webhooks{place}", "operator", json={})
            assert (answered.status_code, answered.json()) == (403, {"detail": "Admin role required"})
        assert api.get(f"/webhooks/{id}")["id"] == id


@pytest.mark.parametrize(
    ("method", "place"),
    [
        *(("GET", ""), ("POST", ""), ("GET", "/wh_1"), ("DELETE", "/wh_1")),
        *(("GET", "/wh_1/deliveries"), ("POST", "/wh_1/test")),
    ],
)
def test_nobody_without_a_token_learns_of_webhooks(api: Api, method: str, place: str) -> None:
    assert api.send(method, f"/webhooks{place}", None).status_code == 401


def test_a_secret_is_shown_nowhere(gateway: Gateway) -> None:
    secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()
    with Receiver() as receiver:
        body = {"url": receiver.url, "events": DOWN, "secret": secret}
        answered = gateway.api.send("POST", "/webhooks", json=body)
        id = answered.json()["data"]["id"]
        gateway.test(id)
        gateway.log(id, 1)
        texts = [answered.text, *(f"{key}: {value}" for key, value in answered.headers.items())]
        for place in ("/webhooks", f"/webhooks/{id}", f"/webhooks/{id}/deliveries", "/metrics"):
            texts.append(gateway.api.send("GET", place).text)
        texts.append(gateway.api.send("DELETE", f"/webhooks/{id}").text)
        texts += [str(one.headers) + one.body.decode() for one in receiver.received]
    texts.append((gateway.state / "log").read_text())
    assert not [text for text in texts if secret.removeprefix("whsec_") in text]


def test_a_wrong_secret_is_not_repeated_in_the_refusal(api: Api) -> None:
    body = {"url": URL, "events": DOWN, "secret": "so-very-secret"}
    assert "so-very-secret" not in api.send("POST", "/webhooks", json=body).text


# What a receiver gets.


def test_a_delivery_is_a_post_to_the_letter(gateway: Gateway) -> None:
    with Receiver() as receiver, gateway.webhook(f"{receiver.url}/a%20b?c=d&e") as id:
        began = time.time()
        gateway.test(id)
        wait_for("the message", lambda: receiver.received, 5)
        (request,) = receiver.received
    assert request.line == "POST /hook/a%20b?c=d&e HTTP/1.1"
    headers = {name.lower(): value for name, value in request.headers}
    assert len(headers) == len(request.headers)
    assert headers.pop("accept-encoding", "identity") == "identity"
    assert began - 1 < int(headers.pop("webhook-timestamp")) < time.time() + 1
    assert headers == {
        "host": f"127.0.0.1:{receiver.port}",
        "content-type": "application/json",
        "content-length": str(len(request.body)),
        "user-agent": "Service-Webhook/1.0",
        "webhook-id": request.id,
    }


def test_a_session_that_ends_is_told_to_the_letter(gateway: Gateway) -> None:
    with Receiver() as receiver, gateway.webhook(receiver.url):
        sessions = {one["id"]: one for one in gateway.api.get("/subscribers")["sessions"]}
        id = gateway.disconnect()
        wait_for("the event", lambda: receiver.received, 5)
        (request,) = receiver.received
    body = json.loads(request.body)
    at = datetime.strptime(body.pop("timestamp"), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    assert abs((datetime.now(UTC) - at).total_seconds()) < 5
    data = body.pop("data")
    assert body == {"event": "session.down"}
    assert list(data.items())[:3] == [
        *(("id", id), ("username", sessions[id]["username"]), ("reason", "admin_disconnect"))
    ]
    assert list(data)[3:] == [
        *("at", "mac_address", "access_interface", "bytes_in", "bytes_out", "duration_seconds")
    ]
    assert data["at"] == at.timestamp()
    assert data["mac_address"] == sessions[id]["mac_address"]
    assert data["access_interface"] == sessions[id]["access_interface"]
    assert data["duration_seconds"] == data["at"] - sessions[id]["started_at"]
    assert list(json.loads(request.body)) == ["event", "timestamp", "data"]
    assert re.fullmatch(r"[0-9a-z]+-[1-9][0-9]*", request.id)


def test_a_receiver_gets_only_the_events_that_it_asked_for(gateway: Gateway) -> None:
    with (
        Receiver() as of_ends,
        Receiver() as of_starts,
        gateway.webhook(of_ends.url, DOWN),
        gateway.webhook(of_starts.url, ["session.up"]) as id,
    ):
        gateway.disconnect()
        wait_for("the event", lambda: of_ends.received, 5)
        gateway.test(id)
        wait_for("the test", lambda: of_starts.received, 5)
        assert [json.loads(one.body)["event"] for one in of_starts.received] == ["webhook.test"]


def test_a_test_is_signed_delivered_and_logged(gateway: Gateway) -> None:
    with Receiver() as receiver, gateway.webhook(receiver.url, secret=SECRET) as id:
        message_id = gateway.test(id)
        (entry,) = gateway.log(id, 1)
        (request,) = receiver.received
        body = verified(request)
        assert (body["event"], body["data"]) == ("webhook.test", {})
        assert (request.id, entry["message_id"]) == (message_id, message_id)
        assert (entry["event"], entry["result"]) == ("webhook.test", "delivered")


def test_a_signature_is_of_the_secret_and_the_body(gateway: Gateway) -> None:
    with Receiver() as receiver, gateway.webhook(receiver.url, secret=SECRET):
        gateway.disconnect()
        wait_for("the event", lambda: receiver.received, 5)
        (request,) = receiver.received
    assert verified(request)["event"] == "session.down"
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        verified(request, "whsec_" + base64.b64encode(b"another key of 24 bytes.").decode())


def test_a_receiver_without_a_secret_gets_no_signature(gateway: Gateway) -> None:
    with Receiver() as receiver, gateway.webhook(receiver.url) as id:
        gateway.test(id)
        wait_for("the test", lambda: receiver.received, 5)
        assert "webhook-signature" not in {name.lower() for name, _ in receiver.received[0].headers}


def test_what_a_receiver_wants_remembered_is_not_sent_back(gateway: Gateway) -> None:
    with Receiver(answer(200, "Set-Cookie: a=b; Path=/")) as receiver, gateway.webhook(receiver.url) as id:
        gateway.test(id)
        gateway.test(id)
        wait_for("two tests", lambda: len(receiver.received) == 2, 5)
        assert "cookie" not in {name.lower() for one in receiver.received for name, _ in one.headers}


def test_events_come_in_their_order_over_one_connection(gateway: Gateway) -> None:
    with Receiver() as receiver, gateway.webhook(receiver.url):
        ended = [gateway.disconnect() for _ in range(20)]
        wait_for("all of them", lambda: len(receiver.received) == 20, 5)
        assert [json.loads(one.body)["data"]["id"] for one in receiver.received] == ended
        assert {one.connection for one in receiver.received} == {1}


def test_a_receiver_that_answers_204_as_it_should_keeps_its_connection(gateway: Gateway) -> None:
    # RFC 9110 section 8.6: there is no Content-Length in such an answer.
    with Receiver(b"HTTP/1.1 204 No Content\r\n\r\n") as receiver, gateway.webhook(receiver.url) as id:
        for _ in range(5):
            gateway.test(id)
        gateway.log(id, 5)
        assert {one.connection for one in receiver.received} == {1}


def test_a_receiver_that_closes_a_connection_between_two_events_gets_both(gateway: Gateway) -> None:
    class Closing(Receiver):
        def converse(self, connection: socket.socket, number: int) -> None:
            self.read(connection, number)
            connection.sendall(OK)

    with Closing() as receiver, gateway.webhook(receiver.url) as id:
        for expected in range(1, 6):
            gateway.test(id)
            gateway.log(id, expected)
        assert [entry["result"] for entry in gateway.log(id)] == ["delivered"] * 5
        assert len(set(receiver.ids)) == len(receiver.ids) == 5


def test_a_receiver_is_reached_over_tls(gateway: Gateway, server_tls: ssl.SSLContext) -> None:
    with Receiver(tls=server_tls) as receiver, gateway.webhook(receiver.url, secret=SECRET) as id:
        gateway.test(id)
        (entry,) = gateway.log(id, 1)
        assert (entry["result"], entry["status"]) == ("delivered", 200)
        verified(receiver.received[0])


# What counts as a success, and what comes after a failure.


@pytest.mark.parametrize("status", [200, 201, 202, 204, 206, 299])
def test_any_2xx_is_a_success(gateway: Gateway, status: int) -> None:
    with Receiver(answer(status)) as receiver, gateway.webhook(receiver.url) as id:
        gateway.test(id)
        (entry,) = gateway.log(id, 1)
        assert (entry["result"], entry["status"], entry["error"]) == ("delivered", status, None)


@pytest.mark.parametrize("status", [300, 304, 400, 401, 404, 410, 429, 500, 503, 599])
def test_any_other_status_is_a_failure(gateway: Gateway, status: int) -> None:
    with Receiver(answer(status)) as receiver, gateway.webhook(receiver.url) as id:
        gateway.test(id)
        (entry,) = gateway.log(id, 1)
        assert (entry["result"], entry["status"], entry["error"]) == ("failed", status, None)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_not_followed(gateway: Gateway, status: int) -> None:
    with (
        Receiver() as good,
        Receiver(answer(status, f"Location: {good.url}", body=b"over there")) as receiver,
        gateway.webhook(receiver.url) as id,
    ):
        gateway.test(id)
        (entry,) = gateway.log(id, 1)
        assert (entry["result"], entry["status"], entry["error"]) == ("failed", status, None)
        assert not good.opened


@pytest.mark.parametrize("location", ["http://[", "http://:a/", "\x80\xff", "//", "http://169.254.169.254/"])
def test_a_redirect_to_nowhere_is_logged_with_its_status(gateway: Gateway, location: str) -> None:
    reply = answer(302, "Location: @").replace(b"@", location.encode("latin-1"))
    with Receiver(reply) as receiver, gateway.webhook(receiver.url) as id:
        gateway.test(id)
        (entry,) = gateway.log(id, 1)
        assert (entry["result"], entry["status"]) == ("failed", 302)


def test_a_delivery_is_logged_with_what_came_of_it(gateway: Gateway) -> None:
    with Receiver(answer(503)) as receiver, gateway.webhook(receiver.url) as id:
        before = time.time()
        gateway.disconnect()
        (entry,) = gateway.log(id, 1)
        started, duration, following = (
            entry.pop(key) for key in ("started_at", "duration", "next_attempt_at")
        )
        assert before - 1 < started < time.time()
        assert 0 < duration < 5
        assert abs(following - (started + duration + 5)) < 0.5
        assert entry == {
            "message_id": receiver.ids[0],
            "event": "session.down",
            "attempt": 1,
            "result": "failed",
            "status": 503,
            "error": None,
            "paused_until": None,
            "dropped": 0,
        }
        assert gateway.api.get(f"/webhooks/{id}/deliveries")["count"] == 1


def test_a_failure_is_tried_again_after_5_seconds_with_the_same_bytes_and_a_valid_signature(
    gateway: Gateway,
) -> None:
    replies = iter([answer(500), OK])
    with Receiver(lambda _: next(replies)) as receiver, gateway.webhook(receiver.url, secret=SECRET) as id:
        gateway.disconnect()
        newest, oldest = gateway.log(id, 2)
        first, second = receiver.received
        assert 5 <= second.at - first.at < 9
        assert (first.id, first.body) == (second.id, second.body)
        assert int(second.header("webhook-timestamp")) - int(first.header("webhook-timestamp")) in range(
            5, 10
        )
        assert verified(first) == verified(second)
        assert (oldest["attempt"], oldest["result"]) == (1, "failed")
        assert (newest["attempt"], newest["result"]) == (2, "delivered")
        assert newest["next_attempt_at"] is None


def test_a_receiver_that_was_away_gets_all_that_waits_within_15_seconds_and_each_event_once(
    gateway: Gateway,
) -> None:
    with ExitStack() as stack:
        with Receiver() as receiver:
            id = stack.enter_context(gateway.webhook(receiver.url))
            gateway.test(id)
            gateway.log(id, 1)
        sessions = [gateway.disconnect() for _ in range(10)]

        def pauses() -> list[float]:
            entries = gateway.log(id)[::-1]
            return [entry["paused_until"] - entry["started_at"] for entry in entries if entry["paused_until"]]

        wait_for("the longest pause", lambda: len(pauses()) == 3, 40)
        assert [round(seconds) for seconds in pauses()] == [5, 10, 15]
        tried = {entry["message_id"] for entry in gateway.log(id)}
        with Receiver(port=receiver.port) as back:
            began = time.monotonic()
            wait_for("the others", lambda: len(set(back.ids) - tried) == 5, 20)
            others = [one for one in back.received if one.id not in tried]
            assert others[-1].at - began < 15 + 3
            # At once, and in order.
            assert others[-1].at - others[0].at < 3
            assert [json.loads(one.body)["data"]["id"] for one in others] == sessions[5:]
            wait_for("the retries", lambda: len(back.ids) == 10, 60)
            assert len(set(back.ids)) == 10
        # Those that were tried in the outage come at their own times.
        retries = [one for one in gateway.log(id)[::-1] if one["attempt"] > 1]
        planned = {
            (one["message_id"], one["attempt"] + 1): one["next_attempt_at"]
            for one in gateway.log(id)
            if one["next_attempt_at"] is not None
        }
        assert retries
        for one in retries:
            assert one["started_at"] >= planned[one["message_id"], one["attempt"]] - 0.1


def test_deleting_a_webhook_ends_its_retries_at_once(gateway: Gateway) -> None:
    with Receiver(answer(500)) as receiver:
        with gateway.webhook(receiver.url) as id:
            gateway.test(id)
            gateway.log(id, 1)
        assert gateway.metrics()["_waiting"] == 0
        with Receiver(answer(500)) as another, gateway.webhook(another.url) as id:
            gateway.test(id)
            gateway.log(id, 2)
        assert len(receiver.received) == 1


def test_deleting_a_webhook_ends_its_connection(gateway: Gateway) -> None:
    with Receiver() as receiver:
        with gateway.webhook(receiver.url) as id:
            gateway.test(id)
            gateway.log(id, 1)
            assert not receiver.ended
        wait_for("the connection's end", lambda: receiver.ended, 2)


def test_the_metrics_count_what_became_of_every_message(gateway: Gateway) -> None:
    before = gateway.metrics()
    assert (before["s"], before["_waiting"]) == (0, 0)
    with (
        Receiver() as good,
        Receiver(answer(500)) as bad,
        gateway.webhook(good.url) as first,
        gateway.webhook(bad.url) as second,
    ):
        for _ in range(3):
            gateway.test(first)
        for _ in range(2):
            gateway.test(second)
        gateway.log(first, 3)
        gateway.log(second, 2)
        during = gateway.metrics()
        assert {name: during[name] - before[name] for name in before} == {
            "s": 2,
            "_paused": 0,
            "_waiting": 2,
            "_attempts_totaldelivered": 3,
            "_attempts_totalfailed": 2,
            "_skipped_total": 0,
            "_dropped_total": 0,
        }
    after = gateway.metrics()
    assert after == {**during, "s": 0, "_waiting": 0}


# Denied networks of the configuration.


@contextmanager
def denied(api: Api, *networks: str) -> Iterator[None]:
    """A configuration with these denied networks, until the end of the block."""

    def commit(value: tuple[str, ...]) -> None:
        body = {"path": "api.webhooks.denied_networks", "value": list(value)}
        assert api.send("POST", "/system/config/set", json=body).status_code == 200
        answered = api.send("POST", "/system/config/commit")
        assert answered.status_code == 200, answered.text

    commit(networks)
    try:
        yield
    finally:
        commit(())


def refused(gateway: Gateway, id: str) -> bool:
    seen = len(gateway.log(id))
    gateway.test(id)
    return gateway.log(id, seen + 1)[0]["result"] == "failed"


@pytest.mark.parametrize("keeps", [True, False], ids=["that keeps its connection", "that connects anew"])
def test_a_network_that_is_denied_gets_nothing_2_seconds_later(gateway: Gateway, keeps: bool) -> None:
    reply = OK if keeps else OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with Receiver(reply) as receiver, gateway.webhook(receiver.url) as id:
        assert not refused(gateway, id)
        with denied(gateway.api, "10.0.0.0/8", "127.0.0.0/8"):
            wait_for("the network to be denied", lambda: refused(gateway, id), 2)
            assert "127.0.0.1" in gateway.log(id)[0]["error"]
            reached = len(receiver.received)
            assert refused(gateway, id)
            assert len(receiver.received) == reached
        wait_for("the network to be allowed", lambda: not refused(gateway, id), 2)


def test_a_network_that_is_denied_by_configuration_may_still_be_registered(gateway: Gateway) -> None:
    with denied(gateway.api, "127.0.0.0/8"), gateway.webhook("http://127.0.0.1:9/") as id:
        assert gateway.api.get(f"/webhooks/{id}")["id"] == id


# Receivers that don't behave.

HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
TEN_GB = b"Content-Length: 10737418240\r\n\r\n"

RUDE: dict[str, Callable[[], Rude]] = {
    "hangs": lambda: Rude(hang),
    "hangs before it reads": lambda: Rude(hang, reads=False),
    "resets": lambda: Rude(reset),
    "resets before it reads": lambda: Rude(reset, reads=False),
    "closes": lambda: Rude(close),
    "closes before it reads": lambda: Rude(close, reads=False),
    "trickles a status line": lambda: Rude(trickle(b"HTTP/1.1 ")),
    "trickles a header": lambda: Rude(trickle(HEAD + b"A: ")),
    "trickles headers": lambda: Rude(trickle(HEAD, b"A: a\r\n")),
    "trickles many 100": lambda: Rude(trickle(b"", b"HTTP/1.1 100 Continue\r\n\r\n")),
    "trickles a redirect's body": lambda: Rude(
        trickle(b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 1000\r\n\r\n")
    ),
    "floods a redirect's body": lambda: Rude(
        flood(b"HTTP/1.1 302 Found\r\nLocation: /\r\n" + TEN_GB, b"a" * 1024)
    ),
    "floods a status line": lambda: Rude(flood(b"HTTP/1.1 2", b"0" * 1024)),
    "floods a header": lambda: Rude(flood(HEAD + b"A: ", b"a" * 1024)),
    "floods headers": lambda: Rude(flood(HEAD, b"Set-Cookie: a=a\r\n")),
    "floods 100s": lambda: Rude(flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n")),
    "floods an error's body": lambda: Rude(flood(b"HTTP/1.1 500 Oh\r\n" + TEN_GB, b"a" * 1024)),
    "speaks another protocol": lambda: Rude(say(b"SSH-2.0-OpenSSH_9.2p1\r\n")),
    "says nothing of HTTP": lambda: Rude(say(bytes(range(256)) * 8)),
    "has no TLS": lambda: Rude(say(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "https", reads=False),
    "hangs in TLS": lambda: Rude(hang, "https", reads=False),
    "trickles in TLS": lambda: Rude(trickle(b"\x16\x03\x03\x40\x00"), "https", reads=False),
}
#: These give a status in time, and then go on about it.
KIND: dict[str, Callable[[], Rude]] = {
    "trickles a body": lambda: Rude(trickle(HEAD + b"Content-Length: 1000\r\n\r\n")),
    "trickles chunks": lambda: Rude(trickle(CHUNKED, b"1\r\na\r\n")),
    "hangs in a body": lambda: Rude(trickle(HEAD + b"Content-Length: 10\r\n\r\n", every=60)),
    "floods a body": lambda: Rude(flood(HEAD + TEN_GB, b"a" * 1024)),
    "floods chunks": lambda: Rude(flood(CHUNKED, b"400\r\n" + b"a" * 1024 + b"\r\n")),
    "floods until it closes": lambda: Rude(flood(HEAD + b"\r\n", b"a" * 1024)),
    "lies about a length": lambda: Rude(say(HEAD + b"Content-Length: 10\r\n\r\nabc")),
    "says more than it said": lambda: Rude(say(answer(200) + b"HTTP/1.1 500 Oh\r\n\r\n" * 100)),
    "has a length of a kind": lambda: Rude(say(HEAD + b"Content-Length: -1\r\n\r\nabc")),
    "has a superscript for a length": lambda: Rude(say(HEAD + b"Content-Length: \xb2\r\n\r\nabc")),
    "has a length of 5000 digits": lambda: Rude(say(HEAD + b"Content-Length: %s\r\n\r\nabc" % (b"9" * 5000))),
}
#: They give no reason to wait for a deadline.
QUICK = {
    *("resets", "resets before it reads", "closes", "closes before it reads", "floods a status line"),
    *("floods a header", "floods headers", "floods an error's body", "speaks another protocol"),
    *("says nothing of HTTP", "has no TLS", "floods a redirect's body", "trickles a redirect's body"),
}


@dataclass
class Ordeal:
    """What came of rude receivers: each one's log, oldest first; of the healthy beside them: the seconds that
    each event took; and of the memory: MB in which the arbiter grew at the most."""

    logs: dict[str, list[dict[str, Any]]]
    seconds: list[float]
    grown: float
    #: The threads that were left when all were deleted and every deadline had passed.
    left: int


@pytest.fixture(scope="module")
def ordeal(gateway: Gateway) -> Iterator[Ordeal]:
    arbiter = gateway.arbiter
    tasks = Path(f"/proc/{arbiter}/task")
    # What it took at the most is counted from now on: proc(5).
    Path(f"/proc/{arbiter}/clear_refs").write_text("5")
    before, threads = memory(arbiter), len(list(tasks.iterdir()))
    with ExitStack() as stack:
        healthy = stack.enter_context(Receiver())
        receivers = {name: stack.enter_context(made()) for name, made in (RUDE | KIND).items()}
        ids = {name: register(gateway.api, one.url, DOWN) for name, one in receivers.items()}
        ids["refuses"] = register(gateway.api, f"http://127.0.0.1:{free_port()}/", DOWN)
        asked: dict[int, float] = {}
        with gateway.webhook(healthy.url):
            end = time.monotonic() + TIMEOUT + 2
            while (at := time.monotonic()) < end:
                asked[gateway.disconnect()] = at
                wait_for("the healthy receiver", lambda: len(healthy.received) == len(asked), 10)
                # Events come every half second, for as long as an attempt may take.
                time.sleep(max(0.0, at + 0.5 - time.monotonic()))
        came = {json.loads(one.body)["data"]["id"]: one.at for one in healthy.received}
        logs = {name: gateway.log(id)[::-1] for name, id in ids.items()}
        grown = memory(arbiter, "VmHWM") - before
        for id in ids.values():
            gateway.api.send("DELETE", f"/webhooks/{id}")
        end = time.monotonic() + 2 * TIMEOUT
        while (left := len(list(tasks.iterdir())) - threads) > 0 and time.monotonic() < end:
            time.sleep(0.1)
        yield Ordeal(logs, [came[id] - at for id, at in asked.items()], grown, left)


@pytest.mark.parametrize("name", RUDE)
def test_a_receiver_that_gives_no_status_has_failed_in_time(ordeal: Ordeal, name: str) -> None:
    first = ordeal.logs[name][0]
    assert first["result"] == "failed"
    assert first["duration"] < TIMEOUT / 2 if name in QUICK else TIMEOUT + 5


@pytest.mark.parametrize("name", [name for name in RUDE if name not in QUICK and name != "floods 100s"])
def test_a_receiver_has_10_seconds_to_give_a_status(ordeal: Ordeal, name: str) -> None:
    first = ordeal.logs[name][0]
    assert (first["status"], first["error"]) == (None, "timeout")
    assert first["duration"] >= TIMEOUT - 0.1


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("refuses", "the connection was refused"),
        ("resets", "the connection was reset"),
        ("resets before it reads", "the connection was reset"),
        ("closes", "the connection was reset"),
        ("has no TLS", "TLS failed"),
        ("speaks another protocol", "the connection failed"),
        ("floods headers", "the connection failed"),
    ],
)
def test_a_failure_is_logged_with_its_reason(ordeal: Ordeal, name: str, reason: str) -> None:
    assert {(entry["status"], entry["error"]) for entry in ordeal.logs[name]} == {(None, reason)}


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("floods a redirect's body", 302),
        ("trickles a redirect's body", 302),
        ("floods an error's body", 500),
    ],
)
def test_a_failure_with_an_endless_body_is_logged_with_its_status(
    ordeal: Ordeal, name: str, status: int
) -> None:
    assert {(entry["status"], entry["error"]) for entry in ordeal.logs[name]} == {(status, None)}


@pytest.mark.parametrize("name", KIND)
def test_a_receiver_that_gives_a_status_has_taken_it_whatever_follows(ordeal: Ordeal, name: str) -> None:
    assert ordeal.logs[name]
    for entry in ordeal.logs[name]:
        assert (entry["result"], entry["status"]) == ("delivered", 200)
        assert entry["duration"] < TIMEOUT / 2


def test_rude_receivers_delay_no_other_one(ordeal: Ordeal) -> None:
    assert len(ordeal.seconds) > 5
    # A rude one holds who waits for it for as long as an attempt may take.
    assert max(ordeal.seconds) < TIMEOUT / 2


def test_rude_receivers_cost_no_memory(ordeal: Ordeal) -> None:
    assert ordeal.grown < 40


def test_the_attempts_of_deleted_webhooks_end_in_time(ordeal: Ordeal) -> None:
    assert ordeal.left <= 0


def test_a_receiver_whose_webhook_is_deleted_in_an_attempt_is_let_go_by_its_deadline(
    gateway: Gateway,
) -> None:
    with Rude(trickle(HEAD + b"A: ", every=0.2)) as receiver:
        with gateway.webhook(receiver.url) as id:
            gateway.test(id)
            wait_for("the attempt", lambda: receiver.received, 5)
        wait_for("its end", lambda: receiver.ended, TIMEOUT + 1)


# What happens to the processes of the service.


def numbers(ids: list[str]) -> dict[str, list[int]]:
    """The sequence numbers of each life of the core, as they came."""
    found: dict[str, list[int]] = {}
    for id in ids:
        life, _, number = id.rpartition("-")
        found.setdefault(life, []).append(int(number))
    return found


def faults(ids: list[str]) -> dict[str, list[int]]:
    """What is missing between the first and the last, what came twice, and what came before its turn."""
    found: dict[str, list[int]] = {"missing": [], "doubled": [], "early": []}
    for life in numbers(ids).values():
        times = Counter(life)
        found["missing"] += sorted(set(range(min(life), max(life) + 1)) - set(life))
        found["doubled"] += [number for number in times if times[number] > 1]
        found["early"] += [one for one, following in pairwise(life) if following < one]
    return found


NO_FAULTS: dict[str, list[int]] = {"missing": [], "doubled": [], "early": []}


@dataclass
class Busy:
    """A stack in which something happens all the time, and a receiver of all of it."""

    api: Api
    process: Process
    state: Path

    @property
    def arbiter(self) -> int:
        return arbiter_of(self.process)

    @property
    def workers(self) -> list[int]:
        return descendants(self.arbiter)

    @property
    def log(self) -> str:
        return (self.state / "log").read_text()

    def ask(self, path: str) -> Any:
        """The data of a GET over a connection of its own; None when nobody was there to answer."""
        headers = {"Authorization": f"Bearer {self.api.token('admin')}", "Connection": "close"}
        try:
            with requests.Session() as session:
                session.trust_env = False
                answered = session.get(
                    f"{self.api.url}/api/v1{path}",
                    headers=headers,
                    verify=self.api.environment["GATEWAY_CA"],
                    timeout=5,
                )
        except (requests.ConnectionError, requests.Timeout):
            return None
        assert answered.status_code == 200, answered.text
        return answered.json()["data"]

    def answer_of(self, worker: int, path: str) -> Any:
        """What this worker answers, which is the only one that may run."""
        others = [pid for pid in self.workers if pid != worker]
        for pid in others:
            os.kill(pid, signal.SIGSTOP)
        try:
            return wait_for(f"worker {worker} to answer", lambda: self.ask(path), 15)
        finally:
            for pid in others:
                os.kill(pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Busy]:
    state = tmp_path_factory.mktemp("busy")
    trusted = state / "certificate.pem"
    with running_stack(state, sessions=2000, arrivals=50, GATEWAY_API_WEBHOOK_CERTIFICATES=trusted) as (
        api,
        process,
    ):
        yield Busy(api, process, state)


@pytest.fixture
def fast(tmp_path: Path) -> Iterator[Fast]:
    with Fast(tmp_path / "ids") as receiver:
        yield receiver


def arrive(receiver: Fast | Receiver, more: int) -> None:
    """Waits until so many more messages have come."""
    wanted = len(receiver.ids) + more
    wait_for(f"{more} more messages", lambda: len(receiver.ids) >= wanted, 20)


def descriptors(pid: int) -> set[str]:
    """What a process has open."""
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(str(entry.readlink()))
        except FileNotFoundError:
            continue
    return found


def kill_one(busy: Busy) -> None:
    """Kills a worker and waits for the one that takes its place."""
    before = busy.workers
    victim = random.choice(before)
    os.kill(victim, signal.SIGKILL)
    wait_for(
        "another worker",
        lambda: len(now := busy.workers) == len(before) and victim not in now,
        10,
    )


def test_a_session_that_starts_is_told_to_the_letter(busy: Busy) -> None:
    with Receiver() as receiver:
        id = register(busy.api, receiver.url, ["session.up"])
        wait_for("an event", lambda: receiver.received, 5)
        busy.api.send("DELETE", f"/webhooks/{id}")
    body = json.loads(receiver.received[0].body)
    assert list(body) == ["event", "timestamp", "data"]
    assert body["event"] == "session.up"
    assert list(body["data"]) == [
        *("id", "type", "username", "ip_address", "interface", "at", "mac_address", "access_interface")
    ]
    sessions = {one["id"]: one for one in busy.api.get("/subscribers")["sessions"]}
    session = sessions[body["data"]["id"]]
    assert body["data"].pop("at") == session["started_at"]
    assert body["data"] == {name: session[name] for name in body["data"]}


def urls(listed: dict[str, Any]) -> dict[str, str]:
    """By the ids of the webhooks: what doesn't change while one is paused."""
    return {one["id"]: one["url"] for one in listed["webhooks"]}


def test_no_delivery_is_lost_or_doubled_where_200_workers_are_killed(
    busy: Busy, fast: Fast, tmp_path: Path
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(busy.state / "certificate.pem", busy.state / "key.pem")
    anew = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with Receiver(tls=tls) as secure, Receiver(anew, tls=tls) as secure_anew, Rude(hang) as hanging:
        ids = [register(busy.api, one.url, BOTH) for one in (fast, secure, secure_anew, hanging)]
        registered = urls(busy.api.get("/webhooks"))
        for number in range(1, 201):
            kill_one(busy)
            # Some die while they start, and some when they have answered.
            time.sleep(random.uniform(0, 0.15))
            if number % 20 == 0:
                assert urls(wait_for("an answer", lambda: busy.ask("/webhooks"))) == registered
        for worker in busy.workers:
            assert urls(busy.answer_of(worker, "/webhooks")) == registered
        arrive(fast, 50)
        for id in ids:
            busy.api.send("DELETE", f"/webhooks/{id}")
        assert all(len(receiver.ids) > 1000 for receiver in (fast, secure, secure_anew))
        assert [faults(receiver.ids) for receiver in (fast, secure, secure_anew)] == [NO_FAULTS] * 3
        assert len(numbers(fast.ids)) == 1
    assert "are lost to the webhooks" not in busy.log


def test_a_worker_that_was_forked_meanwhile_keeps_no_connection_of_a_receiver(busy: Busy) -> None:
    with Receiver() as receiver, Rude(hang) as hanging:
        ids = [register(busy.api, one.url, BOTH) for one in (receiver, hanging)]
        wait_for("both connections", lambda: receiver.received and hanging.received, 10)
        before = set(busy.workers)
        for worker in before:
            os.kill(worker, signal.SIGKILL)
        wait_for("new workers", lambda: len(busy.workers) == 2 and not before & set(busy.workers), 10)
        wait_for("them to answer", lambda: busy.ask("/webhooks"))
        ports = {f":{one.port:04X}" for one in (receiver, hanging)}
        for worker in busy.workers:
            lines = [line.split() for line in Path(f"/proc/{worker}/net/tcp").read_text().splitlines()[1:]]
            inodes = {f"socket:[{line[9]}]" for line in lines if line[2][-5:] in ports}
            assert inodes
            assert not inodes & descriptors(worker)
        busy.api.send("DELETE", f"/webhooks/{ids[0]}")
        wait_for("the connection's end", lambda: receiver.ended, 2)
        busy.api.send("DELETE", f"/webhooks/{ids[1]}")


def test_a_worker_inherits_no_socket_but_those_it_listens_at(busy: Busy) -> None:
    def unix_sockets(pid: int) -> set[str]:
        table = Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]
        hubs = {f"socket:[{line.split()[6]}]" for line in table if "hub.sock" in line}
        return hubs & descriptors(pid)

    assert unix_sockets(busy.arbiter)
    for worker in busy.workers:
        assert not unix_sockets(worker)


def test_a_reload_of_the_api_keeps_webhooks_and_deliveries(busy: Busy, fast: Fast) -> None:
    id = register(busy.api, fast.url, BOTH)
    registered = busy.api.get("/webhooks")
    arrive(fast, 20)
    before = set(busy.workers)
    os.kill(busy.arbiter, signal.SIGHUP)
    wait_for("new workers", lambda: len(busy.workers) == 2 and not before & set(busy.workers), 15)
    for worker in busy.workers:
        assert busy.answer_of(worker, "/webhooks") == registered
    arrive(fast, 50)
    busy.api.send("DELETE", f"/webhooks/{id}")
    assert faults(fast.ids) == NO_FAULTS
    assert len(numbers(fast.ids)) == 1
    assert "are lost to the webhooks" not in busy.log


def test_deliveries_go_on_after_a_restart_of_the_core_and_the_log_tells_of_the_gap(
    busy: Busy, fast: Fast
) -> None:
    id = register(busy.api, fast.url, BOTH)
    arrive(fast, 20)
    assert "are lost to the webhooks" not in busy.log
    os.kill(core_of(busy.process), signal.SIGKILL)
    wait_for("the next life's events", lambda: len(numbers(fast.ids)) == 2, 20)
    arrive(fast, 50)
    busy.api.send("DELETE", f"/webhooks/{id}")
    assert faults(fast.ids) == NO_FAULTS
    _, life = numbers(fast.ids)
    assert re.search(rf"events before {life}-\d+ are lost to the webhooks", busy.log)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_webhooks_are_gone_after_a_restart_of_the_api_and_others_may_come(
    busy: Busy, fast: Fast, sent: signal.Signals
) -> None:
    register(busy.api, fast.url, BOTH)
    arrive(fast, 5)
    arbiter, workers = busy.arbiter, busy.workers
    os.kill(arbiter, sent)
    wait_for("its end", lambda: not any(Path(f"/proc/{pid}").exists() for pid in (arbiter, *workers)), 20)
    wait_for("the API to answer", lambda: busy.ask("/webhooks"), 20)
    assert busy.ask("/webhooks") == {"webhooks": [], "count": 0}
    seen = len(fast.ids)
    id = register(busy.api, fast.url, BOTH)
    arrive(fast, 20)
    busy.api.send("DELETE", f"/webhooks/{id}")
    assert faults(fast.ids[seen:]) == NO_FAULTS
    assert "cannot start the gateway API" not in busy.log


# A gateway whose sessions all come back at once.


BURST = 50_000


@dataclass
class Burst:
    """What came of 5,000 sessions a second, or as many as can be made, until there were 50,000; in `lasted`
    seconds."""

    ids: list[str]
    samples: dict[str, float]
    health: list[float]
    lasted: float
    grown: float
    peak: float
    dead: list[dict[str, Any]]


@pytest.fixture(scope="module")
def burst(gateway: Gateway, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Burst]:
    state = tmp_path_factory.mktemp("burst")
    for name in ("certificate.pem", "key.pem", "secret", "factory.json"):
        shutil.copy(gateway.state / name, state)
    core, factory = state / "core.sock", state / "factory.json"
    with ExitStack() as stack:
        fast = stack.enter_context(Fast(state / "ids"))
        hanging = stack.enter_context(Rude(hang))
        first = ExitStack()
        stack.push(first)
        first.enter_context(running_core(core, factory, "--sessions", "0", "--arrivals", "0"))
        url = stack.enter_context(running_api(core, state))
        api = Api({**gateway.api.environment, "GATEWAY_URL": url})
        register(api, fast.url, BOTH)
        dead = register(api, hanging.url, BOTH)
        arbiter = next(
            int(entry.name)
            for entry in Path("/proc").glob("[0-9]*")
            if _parent(entry) == os.getpid() and b"gunicorn" in (entry / "cmdline").read_bytes()
        )
        before = memory(arbiter)
        first.close()
        health: list[float] = []
        over = threading.Event()
        watcher = threading.Thread(target=_watch_health, args=(url, state / "certificate.pem", health, over))
        with running_core(core, factory, "--sessions", "0", "--arrivals", "5000"):
            wait_for("the burst", lambda: fast.ids, 20)
            began = time.monotonic()
            watcher.start()
            # At the rate at which this machine can make them. The dead one has room for 10,000.
            wait_for("a burst", lambda: metrics(api)["_dropped_total"] > BURST - MOST_WAITING, 300)
            lasted = time.monotonic() - began
            log = api.get(f"/webhooks/{dead}/deliveries")["deliveries"]
        stack.enter_context(running_core(core, factory, "--sessions", "100", "--arrivals", "0"))

        def waiting() -> float:
            return metrics(api)["_waiting"]

        # The dead one's stay.
        wait_for("all that waited", lambda: waiting() <= MOST_WAITING, 300)
        over.set()
        watcher.join(60)
        samples = metrics(api)
        api.send("DELETE", f"/webhooks/{dead}")
        peak = memory(arbiter, "VmHWM") - before
        api.session.close()
        yield Burst(fast.ids, samples, health, lasted, memory(arbiter) - before, peak, log)


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _watch_health(url: str, certificate: Path, seconds: list[float], over: threading.Event) -> None:
    with requests.Session() as session:
        session.trust_env = False
        while not over.wait(0.1):
            began = time.monotonic()
            session.get(f"{url}/api/v1/health", verify=certificate, timeout=60)
            seconds.append(time.monotonic() - began)


def test_every_event_of_a_burst_is_delivered_once_and_in_order(burst: Burst) -> None:
    (found,) = numbers(burst.ids).values()
    assert len(found) > BURST
    assert faults(burst.ids) == NO_FAULTS
    assert burst.samples["_attempts_totaldelivered"] == len(found)


def test_a_burst_does_not_keep_the_api_from_answering(burst: Burst) -> None:
    assert len(burst.health) > 50
    assert sorted(burst.health)[int(len(burst.health) * 0.9)] < 1


def test_the_memory_of_a_burst_is_given_back(burst: Burst) -> None:
    assert burst.grown < 60


def test_what_a_dead_receiver_misses_in_a_burst_is_counted_and_logged(burst: Burst) -> None:
    dropped = [entry for entry in burst.dead if entry["result"] == "dropped"]
    assert dropped
    assert all(entry["dropped"] > 0 and entry["message_id"] for entry in dropped)
    # What waits for the dead one, and the one that it holds.
    assert burst.samples["_dropped_total"] > len(burst.ids) - MOST_WAITING - 1000


# A receiver that takes, beside many that refuse.


@dataclass
class Beside:
    """What a receiver got at so many events a second, beside so many that refuse: the ids of the messages,
    and how late the last one of each second was. `processor` is the arbiter's share of one. The log and the
    record are one's that refuses, as they were at `read_at`."""

    ids: list[str]
    late: list[float]
    processor: float
    samples: dict[str, float]
    log: list[dict[str, Any]]
    record: dict[str, Any]
    read_at: float


def beside_refusing(state: Path, refusing: int, rate: int, seconds: float) -> Beside:
    """Has a whole gateway work for a while."""
    with ExitStack() as stack:
        fast = stack.enter_context(Fast(state / "ids", "--times"))
        nobody = stack.enter_context(socket.socket())
        # Bound, and nobody listens: each connection is refused.
        nobody.bind(("127.0.0.1", 0))
        # As many leave as come.
        api, process = stack.enter_context(running_stack(state, sessions=20_000, arrivals=rate / 2))
        register(api, fast.url, BOTH)
        refused = [
            register(api, f"http://127.0.0.1:{nobody.getsockname()[1]}/", BOTH) for _ in range(refusing)
        ]
        wait_for("an event", lambda: fast.ids, 10)
        arbiter = arbiter_of(process)
        before, began = processor_seconds(arbiter), time.monotonic()
        time.sleep(seconds)
        spent = (processor_seconds(arbiter) - before) / (time.monotonic() - began)
        came = [(id, float(at), int(happened)) for id, at, happened in map(str.split, fast.lines)]
        samples = metrics(api)
        log, record = [], {}
        if refused:
            log = api.get(f"/webhooks/{refused[0]}/deliveries")["deliveries"]
            record = api.get(f"/webhooks/{refused[0]}")
        read_at = time.time()
    # The last event of a second happened at its end, or hardly before. After the very last, others may come.
    last_of = {happened: at for _, at, happened in came}
    late = [at - (happened + 1) for happened, at in last_of.items()][:-1]
    return Beside([id for id, _, __ in came], late, spent, samples, log, record, read_at)


def processor_seconds(pid: int) -> float:
    """What a process has used, in its own name and in the kernel's: proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Beside:
    return beside_refusing(tmp_path_factory.mktemp("refusing"), refusing=99, rate=200, seconds=20)


@pytest.mark.slow
def test_99_refusing_receivers_take_nothing_from_one_that_takes(beside: Beside) -> None:
    assert len(beside.ids) > 200 * 20 * 0.8
    assert faults(beside.ids) == NO_FAULTS
    assert max(beside.late) < 10


@pytest.mark.slow
def test_a_receiver_that_refuses_is_paused_and_shown_as_such(beside: Beside) -> None:
    assert beside.samples["_paused"] == 99
    assert beside.record["paused_until"] > beside.read_at - 60
    assert [entry["paused_until"] is not None for entry in beside.log[-3:]] == [True, False, False]
    # At 0, 5 and 15 s a message is tried, and what was tried, 5 s later: instead of 2,000 attempts a second.
    assert len(beside.log) < 20


# One sender, where a deadline can be moved.


def message() -> WebhookMessage:
    return WebhookMessage("life-1", "session.up", b"{}")


@contextmanager
def sending(url: str) -> Iterator[tuple[Sender, list[AttemptResult]]]:
    """An attempt under way in a thread, and its outcome when it has one."""
    sender = Sender(url, None, tuple, None)
    outcomes: list[AttemptResult] = []
    thread = threading.Thread(target=lambda: outcomes.append(sender.send(message())))
    thread.start()
    try:
        yield sender, outcomes
    finally:
        sender.cut(float("inf"))
        thread.join(TIMEOUT + 1)
        sender.close()
        assert not thread.is_alive()


def test_an_attempt_is_not_cut_before_its_deadline() -> None:
    with Rude(hang) as receiver, sending(receiver.url) as (sender, outcomes):
        wait_for("the request", lambda: receiver.received, 5)
        sender.cut(time.monotonic() + TIMEOUT - 1)
        assert not receiver.ended
        assert not outcomes


def test_an_attempt_is_cut_at_its_deadline() -> None:
    with Rude(hang) as receiver, sending(receiver.url) as (sender, outcomes):
        wait_for("the request", lambda: receiver.received, 5)
        sender.cut(time.monotonic() + TIMEOUT)
        (outcome,) = wait_for("the outcome", lambda: outcomes, 2)
        assert outcome.status is None
        assert not outcome.delivered


def test_cutting_a_sender_that_does_nothing_does_nothing() -> None:
    with Receiver() as receiver:
        sender = Sender(receiver.url, None, tuple, None)
        sender.cut(float("inf"))
        assert sender.send(message()).delivered
        sender.cut(float("inf"))
        assert sender.send(message()).delivered
        assert {one.connection for one in receiver.received} == {1}
        sender.close()
        sender.cut(float("inf"))


def test_a_sender_that_was_cut_sends_again() -> None:
    calls = count()
    with Receiver(lambda _: OK if next(calls) else b"") as receiver:
        sender = Sender(receiver.url, None, tuple, None)
        assert sender.send(message()).error == "the connection was reset"
        assert sender.send(message()).delivered
        sender.close()


@pytest.mark.parametrize("status", [199, 300, None])
def test_only_2xx_is_delivered(status: int | None) -> None:
    assert not AttemptResult(status, None, 0.1).delivered


def test_a_receiver_with_a_certificate_that_nobody_signed_gets_nothing(
    server_tls: ssl.SSLContext,
) -> None:
    with Receiver(tls=server_tls) as receiver:
        sender = Sender(receiver.url, None, tuple, None)
        assert sender.send(message()).error == "TLS failed"
        assert not receiver.received
        sender.close()


def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as receiver, Receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        sender = Sender(receiver.url, None, tuple, None)
        assert sender.send(message()).delivered
        assert len(receiver.received) == 1
        assert not proxy.opened
        sender.close()
