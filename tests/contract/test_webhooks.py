"""Webhooks over the API: registered, delivered to real receivers, logged and counted."""

import base64
import json
import os
import re
import secrets
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.support.receivers import OK, Receiver, answer
from tests.support.stack import Api, free_port, running_stack, wait_for
from tests.support.webhooks import BOTH, DOWN, Gateway, metrics, verified

GUIDE = (Path(__file__).parents[2] / "docs/how-to/webhooks.md").read_text()
URL = "http://example.com/"
#: Of a webhook that was registered, and to which no attempt failed.
WELL = {"paused_until": None, "origin": "registered", "state": "well", "failing_since": None}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    state = tmp_path_factory.mktemp("webhooks")
    trusted = state / "certificate.pem"
    with running_stack(state, sessions=200, GATEWAY_API_WEBHOOK_CERTIFICATES=trusted) as (api, process):
        yield Gateway(api, process, state)


@pytest.fixture(scope="module")
def api(gateway: Gateway) -> Api:
    return gateway.api


# Registration


def test_a_webhook_is_registered_shown_listed_and_deleted_once(gateway: Gateway, api: Api) -> None:
    assert api.get("/webhooks") == {"webhooks": [], "count": 0}
    body = {"url": "https://example.com/hook?a=b", "events": BOTH}
    answered = api.send("POST", "/webhooks", json=body)
    record = answered.json()["data"]
    assert (answered.status_code, answered.json()["status"]) == (201, "ok")
    assert record == {"id": record["id"], **body, **WELL}
    assert re.fullmatch(r"wh_[0-9a-f]{16}", record["id"])
    assert answered.headers["Location"].endswith(f"/api/v1/webhooks/{record['id']}")
    path = f"/webhooks/{record['id']}"
    with gateway.webhook(URL) as second:
        assert api.get(path) == record
        assert api.get("/webhooks") == {
            "webhooks": [record, {"id": second, "url": URL, "events": DOWN, **WELL}],
            "count": 2,
        }
        deleted = api.send("DELETE", path)
        assert deleted.status_code == 200
        assert deleted.json()["data"] == {"message": f"Webhook {record['id']} deleted"}
        assert [webhook["id"] for webhook in api.get("/webhooks")["webhooks"]] == [second]
    for method, place in (("GET", ""), ("GET", "/deliveries"), ("DELETE", ""), ("POST", "/test")):
        missing = api.send(method, path + place)
        assert missing.status_code == 404
        assert missing.json() == {"status": "error", "message": "No such webhook"}


def test_a_registration_that_is_not_right_is_refused_with_the_place(api: Api) -> None:
    bodies: list[tuple[dict[str, Any], str]] = [
        ({"events": DOWN}, "url"),
        ({"url": URL}, "events"),
        ({"url": URL, "events": []}, "events"),
        ({"url": URL, "events": "session.down"}, "events"),
        ({"url": URL, "events": ["session.down", "session.down"]}, "events"),
        ({"url": URL, "events": ["session.down", "session_up"]}, "events.1"),
        ({"url": URL, "events": ["webhook.test"]}, "events.0"),
        ({"url": URL, "events": DOWN, "id": "wh_1"}, "id"),
        ({"url": None, "events": DOWN}, "url"),
        ({"url": "example.com", "events": DOWN}, "url"),
        ({"url": "http://169.254.169.254/", "events": DOWN}, "url"),
        ({"url": URL, "events": DOWN, "secret": "so very secret"}, "secret"),
        ({"url": URL, "events": DOWN, "secret": base64.b64encode(b"a" * 23).decode()}, "secret"),
        ({"url": URL, "events": DOWN, "secret": base64.b64encode(b"a" * 65).decode()}, "secret"),
    ]
    for body, path in bodies:
        answered = api.send("POST", "/webhooks", json=body)
        assert answered.status_code == 400, answered.text
        found = [error["path"].replace("[", ".").rstrip("]") for error in answered.json()["errors"]]
        assert path in found
        assert "so very secret" not in answered.text
    assert api.get("/webhooks")["count"] == 0


def test_the_receiver_of_the_guide_verifies_signatures(gateway: Gateway) -> None:
    (source,) = re.findall(r"^cat > receiver.py << 'END'\n(.*?)^END$", GUIDE, re.MULTILINE | re.DOTALL)
    secret, port = base64.b64encode(secrets.token_bytes(32)).decode(), free_port()
    assert '("127.0.0.1", 9000)' in source
    # -I: nothing but Python's own library.
    with subprocess.Popen(
        [sys.executable, "-I", "-c", source.replace("9000", str(port))],
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
            assert requests.post(url, data=b"{}", timeout=60).status_code == 401
            assert receiver.stdout.readline() == "forged {}\n"
        finally:
            receiver.terminate()


def test_a_secret_signs_each_message_over_tls_too_and_is_shown_nowhere(gateway: Gateway, api: Api) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(gateway.state / "certificate.pem", gateway.state / "key.pem")
    for size, prefix in ((24, ""), (64, "whsec_")):
        secret = base64.b64encode(secrets.token_bytes(size)).decode()
        with Receiver(tls=tls) as receiver:
            body = {"url": receiver.url, "events": DOWN, "secret": prefix + secret}
            answered = api.send("POST", "/webhooks", json=body)
            id = answered.json()["data"]["id"]
            message = gateway.test(id)
            (entry,) = gateway.log(id, 1)
            (request,) = receiver.received
        sent = verified(request, prefix + secret)
        assert (sent["event"], sent["data"]) == ("webhook.test", {})
        assert (request.id, entry["message_id"]) == (message, message)
        assert (entry["event"], entry["result"]) == ("webhook.test", "delivered")
        texts = [answered.text, str(answered.headers), str(request.headers), request.body.decode()]
        for place in ("/webhooks", f"/webhooks/{id}", f"/webhooks/{id}/deliveries", "/metrics"):
            texts.append(api.send("GET", place).text)
        texts.append(api.send("DELETE", f"/webhooks/{id}").text)
        texts.append((gateway.state / "log").read_text())
        assert not [text for text in texts if secret in text]


# What a receiver gets


def test_a_delivery_is_a_post_to_the_letter(gateway: Gateway) -> None:
    # A receiver may want to have something remembered: it isn't sent back.
    with (
        Receiver(answer(200, "Set-Cookie: a=b; Path=/")) as receiver,
        gateway.webhook(f"{receiver.url}/a%20b?c=d&e") as id,
    ):
        began = time.time()
        gateway.test(id)
        gateway.test(id)
        gateway.log(id, 2)
    for request in receiver.received:
        assert request.line == "POST /hook/a%20b?c=d&e HTTP/1.1"
        headers = {name.lower(): value for name, value in request.headers}
        assert len(headers) == len(request.headers)
        assert headers.pop("accept-encoding", "identity") == "identity"
        assert began - 1 < int(headers.pop("webhook-timestamp")) < time.time() + 1
        # Without a secret, no signature.
        assert headers == {
            "host": f"127.0.0.1:{receiver.port}",
            "content-type": "application/json",
            "content-length": str(len(request.body)),
            "user-agent": "Service-Webhook/1.0",
            "webhook-id": request.id,
        }


def test_events_come_in_their_order_over_one_connection(gateway: Gateway, api: Api) -> None:
    # RFC 9110 section 8.6: there is no Content-Length in such an answer.
    with Receiver(b"HTTP/1.1 204 No Content\r\n\r\n") as receiver, gateway.webhook(receiver.url) as id:
        sessions = {one["id"]: one for one in api.get("/subscribers")["sessions"]}
        ended = [gateway.disconnect() for _ in range(20)]
        gateway.log(id, 20)
    assert {one.connection for one in receiver.received} == {1}
    bodies = [json.loads(one.body) for one in receiver.received]
    assert [body["data"]["id"] for body in bodies] == ended
    for body, request in zip(bodies, receiver.received, strict=True):
        assert list(body) == ["event", "timestamp", "data"]
        assert body["event"] == "session.down"
        data, session = body["data"], sessions[body["data"]["id"]]
        at = datetime.strptime(body["timestamp"], "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
        assert data["at"] == at.timestamp()
        assert data["duration_seconds"] == data["at"] - session["started_at"]
        assert data["reason"] == "admin_disconnect"
        for name in ("username", "mac_address", "access_interface"):
            assert data[name] == session[name]
        assert re.fullmatch(r"[0-9a-z]+-[1-9][0-9]*", request.id)


def test_a_receiver_that_closes_a_connection_between_two_events_gets_both(gateway: Gateway) -> None:
    class Closing(Receiver):
        def converse(self, connection: socket.socket, number: int) -> None:
            self.read(connection, number)
            connection.sendall(OK)
            connection.shutdown(socket.SHUT_RDWR)
            self.ended[number] = time.monotonic()

    with Closing() as receiver, gateway.webhook(receiver.url) as id:
        for expected in range(1, 6):
            gateway.test(id)
            gateway.log(id, expected)
            wait_for("the end of the connection", lambda expected=expected: len(receiver.ended) == expected)
        assert [entry["result"] for entry in gateway.log(id)] == ["delivered"] * 5
        assert len(set(receiver.ids)) == len(receiver.ids) == 5


def test_a_change_of_rates_is_delivered_to_a_webhook_that_names_it(gateway: Gateway, api: Api) -> None:
    (session,) = api.get("/subscribers", params={"limit": 1, "sort": "-id"})["sessions"]
    with Receiver() as receiver, gateway.webhook(receiver.url, ["session.rate"]) as id:
        path = f"/subscribers/{session['id']}/rate"
        assert api.send("PUT", path, json={"rate_up": "7 mbit"}).status_code == 200
        gateway.disconnect()
        (entry,) = gateway.log(id, 1)
        body = json.loads(receiver.received[0].body)
    assert (entry["event"], body["event"]) == ("session.rate", "session.rate")
    assert (body["data"]["id"], body["data"]["username"]) == (session["id"], session["username"])
    assert (body["data"]["rate_down"], body["data"]["rate_up"]) == (session["rate_down"], 7_000_000)
    assert body["data"]["expires_at"] is None


# What counts as a success, and what comes after a failure


@pytest.mark.parametrize(("status", "result"), [(299, "delivered"), (304, "failed"), (410, "failed")])
def test_any_2xx_is_a_success_and_any_other_status_a_failure(
    gateway: Gateway, status: int, result: str
) -> None:
    with Receiver(answer(status)) as receiver, gateway.webhook(receiver.url) as id:
        gateway.test(id)
        (entry,) = gateway.log(id, 1)
        assert (entry["result"], entry["status"], entry["error"]) == (result, status, None)


@pytest.mark.parametrize("location", ["", "http://[", "\x80\xff", "http://169.254.169.254/"])
def test_a_redirect_is_a_failure_and_not_followed(gateway: Gateway, location: str) -> None:
    with Receiver() as good:
        reply = answer(307, "Location: @", body=b"over there")
        reply = reply.replace(b"@", (location or good.url).encode("latin-1"))
        with Receiver(reply) as receiver, gateway.webhook(receiver.url) as id:
            gateway.test(id)
            (entry,) = gateway.log(id, 1)
        assert (entry["result"], entry["status"], entry["error"]) == ("failed", 307, None)
        assert not good.opened


def test_a_delivery_is_logged_with_what_came_of_it(gateway: Gateway, api: Api) -> None:
    with Receiver(answer(503)) as receiver, gateway.webhook(receiver.url) as id:
        before = time.time()
        gateway.disconnect()
        (entry,) = gateway.log(id, 1)
        started, duration, following = (
            entry.pop(key) for key in ("started_at", "duration", "next_attempt_at")
        )
        assert before - 1 < started < time.time()
        assert duration > 0
        assert following == pytest.approx(started + duration + 5, abs=2.5)
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
        assert api.get(f"/webhooks/{id}/deliveries")["count"] == 1


def test_the_metrics_count_what_became_of_every_message_until_its_webhook_is_deleted(
    gateway: Gateway, api: Api
) -> None:
    # A scrape is up to a second old.
    wait_for("a scrape without webhooks", lambda: metrics(api)["s"] == 0)
    before = metrics(api)
    assert before["_waiting"] == 0
    with (
        Receiver() as good,
        Receiver(answer(500)) as bad,
        gateway.webhook(good.url) as first,
        gateway.webhook(bad.url) as second,
    ):
        for id, number in ((first, 3), (second, 2)):
            for _ in range(number):
                gateway.test(id)
            gateway.log(id, number)
        sent = {"s": 2, "_paused": 0, "_waiting": 2, "_skipped_total": 0, "_dropped_total": 0}
        sent |= {"_attempts_totaldelivered": 3, "_attempts_totalfailed": 2}
        during = {name: before[name] + number for name, number in sent.items()}
        wait_for("a scrape with them", lambda: metrics(api) == during)
    wait_for("a scrape after their end", lambda: metrics(api) == {**during, "s": 0, "_waiting": 0})


# Denied networks of the configuration


@pytest.mark.parametrize("keeps", [True, False], ids=["that keeps its connection", "that connects anew"])
def test_a_network_that_is_denied_gets_nothing(gateway: Gateway, api: Api, keeps: bool) -> None:
    reply = OK if keeps else OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")

    def refused() -> bool:
        seen = len(gateway.log(id))
        gateway.test(id)
        newest = gateway.log(id, seen + 1)[0]
        return newest["result"] == "failed" and "127.0.0.1" in newest["error"]

    denied = "api.webhooks.denied_networks"
    with Receiver(reply) as receiver, gateway.webhook(receiver.url) as id:
        assert not refused()
        gateway.commit(denied, ["10.0.0.0/8", "127.0.0.0/8"])
        wait_for("the network to be denied", refused)
        reached = len(receiver.received)
        assert refused()
        assert len(receiver.received) == reached
        # It may still be registered.
        with gateway.webhook("http://127.0.0.1:9/") as another:
            assert api.get(f"/webhooks/{another}")["id"] == another
        gateway.commit(denied, [])
        wait_for("the network to be allowed", lambda: not refused())
