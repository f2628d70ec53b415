"""Webhooks over the API: registered, delivered to real receivers, retried, logged and counted."""

import base64
import json
import os
import re
import secrets
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import requests
import standardwebhooks
from prometheus_client.parser import text_string_to_metric_families

from gateway_api.hub.message import WebhookMessage
from gateway_api.hub.sender import Sender
from tests.support.prometheus import scrape
from tests.support.receivers import (
    OK,
    Received,
    Receiver,
    answer,
)
from tests.support.stack import (
    Api,
    descendants,
    free_port,
    running_stack,
    wait_for,
)

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


def test_a_session_that_starts_is_told_to_the_letter(tmp_path: Path) -> None:
    with running_stack(tmp_path, sessions=0, arrivals=5) as (api, _), Receiver() as receiver:
        register(api, receiver.url, ["session.up"])
        wait_for("an event", lambda: receiver.received, 5)
        sessions = {one["id"]: one for one in api.get("/subscribers")["sessions"]}
    body = json.loads(receiver.received[0].body)
    assert list(body) == ["event", "timestamp", "data"]
    assert body["event"] == "session.up"
    assert list(body["data"]) == [
        *("id", "type", "username", "ip_address", "interface", "at", "mac_address", "access_interface")
    ]
    session = sessions[body["data"]["id"]]
    assert body["data"].pop("at") == session["started_at"]
    assert body["data"] == {name: session[name] for name in body["data"]}


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


def test_a_change_of_rates_is_delivered_to_a_webhook_that_names_it(gateway: Gateway) -> None:
    (session,) = gateway.api.get("/subscribers", params={"limit": 1, "sort": "-id"})["sessions"]
    with Receiver() as receiver, gateway.webhook(receiver.url, ["session.rate"]) as id:
        path = f"/subscribers/{session['id']}/rate"
        assert gateway.api.send("PUT", path, json={"rate_up": "7 mbit"}).status_code == 200
        gateway.disconnect()
        (entry,) = gateway.log(id, 1)
        body = json.loads(receiver.received[0].body)
    assert (entry["event"], body["event"]) == ("session.rate", "session.rate")
    assert (body["data"]["id"], body["data"]["username"]) == (session["id"], session["username"])
    assert (body["data"]["rate_down"], body["data"]["rate_up"]) == (session["rate_down"], 7_000_000)
    assert body["data"]["expires_at"] is None


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
        assert abs(following - (started + duration + 5)) < 2.5
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


@pytest.mark.slow
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
        # From the start of the attempt, which takes a while on a busy machine.
        assert [(seconds + 0.1) // 5 * 5 for seconds in pauses()] == [5, 10, 15]
        tried = {entry["message_id"] for entry in gateway.log(id)}
        with Receiver(port=receiver.port) as back:
            began = time.monotonic()
            wait_for("the others", lambda: len(set(back.ids) - tried) == 5, 20)
            others = [one for one in back.received if one.id not in tried]
            assert others[-1].at - began < 15 + 10
            # At once, and in order.
            assert others[-1].at - others[0].at < 5
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
