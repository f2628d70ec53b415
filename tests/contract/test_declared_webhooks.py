"""Webhooks that the configuration declares: there after each start and commit, and ended by a commit only."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks

from tests.support.receivers import OK, Received, Receiver, answer
from tests.support.sse import master_of, workers_of
from tests.support.stack import Api, core_of, running_stack, wait_for

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ANOTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
DOWN, BOTH = ["session.down"], ["session.up", "session.down"]
PATH = "api.webhooks.receivers"


class Gateway:
    """A running stack in which nothing happens by itself; each disconnect is one event."""

    def __init__(self, api: Api, process: "subprocess.Popen[bytes]", state: Path) -> None:
        self.api = api
        self.process = process
        self.state = state
        self._ids = count(1)

    def disconnect(self) -> int:
        """Ends one session; its id."""
        id = next(self._ids)
        assert self.api.send("DELETE", f"/subscribers/{id}").status_code == 200
        return id

    def declare(self, *receivers: dict[str, Any]) -> None:
        """Commits these, and no others."""
        self.api.send("POST", "/system/config/set", json={"path": PATH, "value": receivers})
        answered = self.api.send("POST", "/system/config/commit")
        assert answered.status_code == 200, answered.text

    def webhooks(self) -> dict[str, dict[str, Any]]:
        """By URL."""
        return {webhook["url"]: webhook for webhook in self.api.get("/webhooks")["webhooks"]}

    def declared(self, *urls: str) -> dict[str, dict[str, Any]]:
        """The declared webhooks by URL, as soon as they are these."""

        def found() -> dict[str, dict[str, Any]]:
            return {url: one for url, one in self.webhooks().items() if one["origin"] == "declared"}

        wait_for("the declared webhooks", lambda: found().keys() == set(urls))
        return found()

    def deliveries(self, id: str, number: int = 0) -> list[dict[str, Any]]:
        """The log, as soon as it has so many entries."""

        def log() -> list[dict[str, Any]]:
            found: list[dict[str, Any]] = self.api.get(f"/webhooks/{id}/deliveries")["deliveries"]
            return found

        wait_for(f"{number} deliveries", lambda: len(log()) >= number)
        return log()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    state = tmp_path_factory.mktemp("declared") / "state"
    with running_stack(state, sessions=200) as (api, process):
        yield Gateway(api, process, state)


@pytest.fixture(autouse=True)
def none_declared(gateway: Gateway) -> Iterator[None]:
    yield
    gateway.api.send("POST", "/system/config/discard")
    gateway.declare()
    gateway.declared()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver(OK) as made:
        yield made


def received(receiver: Receiver, number: int) -> list[Received]:
    wait_for(f"{number} deliveries", lambda: len(receiver.received) >= number)
    return receiver.received


def signed(request: Received, secret: str) -> bool:
    try:
        standardwebhooks.Webhook(secret).verify(request.body, dict(request.headers))
    except standardwebhooks.WebhookVerificationError:
        return False
    return True


def test_a_declared_webhook_is_there_after_the_commit_and_gets_signed_events(
    gateway: Gateway, receiver: Receiver
) -> None:
    gateway.declare({"url": receiver.url, "events": DOWN, "secret": SECRET})
    webhook = gateway.declared(receiver.url)[receiver.url]
    assert list(webhook)[:3] == ["id", "url", "events"]
    assert webhook == {
        "id": webhook["id"],
        "url": receiver.url,
        "events": DOWN,
        "paused_until": None,
        "origin": "declared",
        "state": "well",
        "failing_since": None,
    }
    assert gateway.api.get(f"/webhooks/{webhook['id']}") == webhook
    id = gateway.disconnect()
    (request,) = received(receiver, 1)
    assert json.loads(request.body)["data"]["id"] == id
    assert signed(request, SECRET)


def test_a_commit_that_declares_it_no_more_ends_it(gateway: Gateway, receiver: Receiver) -> None:
    gateway.declare({"url": receiver.url, "events": DOWN})
    id = gateway.declared(receiver.url)[receiver.url]["id"]
    gateway.declare()
    assert gateway.declared() == {}
    assert gateway.api.send("GET", f"/webhooks/{id}").status_code == 404


def test_what_a_commit_leaves_as_it_is_keeps_its_state_and_its_log(
    gateway: Gateway, receiver: Receiver
) -> None:
    with Receiver(answer(503)) as failing:
        gateway.declare({"url": failing.url, "events": DOWN})
        before = gateway.declared(failing.url)[failing.url]
        gateway.disconnect()
        (entry,) = gateway.deliveries(before["id"], 1)
        before = gateway.webhooks()[failing.url]
        assert (before["state"], before["failing_since"]) == ("failing", entry["started_at"])
        gateway.declare({"url": receiver.url, "events": BOTH}, {"url": failing.url, "events": DOWN})
        after = gateway.declared(receiver.url, failing.url)
        assert (after[failing.url], gateway.deliveries(before["id"])) == (before, [entry])
        # Its retry comes, too: the queue is the same.
        assert received(failing, 2)[1].id == entry["message_id"]


def test_a_new_secret_signs_the_next_message_and_the_log_goes_on(
    gateway: Gateway, receiver: Receiver
) -> None:
    for number, secret in enumerate((SECRET, ANOTHER), 1):
        gateway.declare({"url": receiver.url, "events": DOWN, "secret": secret})
        id = gateway.declared(receiver.url)[receiver.url]["id"]

        def arrives_signed(secret: str = secret) -> bool:
            seen = len(receiver.received)
            gateway.disconnect()
            return signed(received(receiver, seen + 1)[-1], secret)

        wait_for("a message with the new signature", arrives_signed)
        assert len(gateway.deliveries(id)) >= number


def test_other_events_are_another_queue(gateway: Gateway, receiver: Receiver) -> None:
    gateway.declare({"url": receiver.url, "events": ["session.up"]})
    gateway.declared(receiver.url)
    gateway.declare({"url": receiver.url, "events": BOTH})
    wait_for("the other events", lambda: gateway.declared(receiver.url)[receiver.url]["events"] == BOTH)
    id = gateway.disconnect()
    assert json.loads(received(receiver, 1)[0].body)["data"]["id"] == id


def test_a_receiver_that_fails_in_a_row_is_paused_and_well_again_after_a_success(gateway: Gateway) -> None:
    replies = [answer(503)]
    with Receiver(lambda *_: replies[0]) as receiver:
        gateway.declare({"url": receiver.url, "events": DOWN})
        id = gateway.declared(receiver.url)[receiver.url]["id"]
        for _ in range(3):
            gateway.disconnect()
        log = gateway.deliveries(id, 3)
        webhook = gateway.webhooks()[receiver.url]
        assert (webhook["state"], webhook["failing_since"]) == ("paused", log[-1]["started_at"])
        assert webhook["paused_until"] > webhook["failing_since"]
        replies[0] = OK
        assert gateway.api.send("POST", f"/webhooks/{id}/test").status_code == 200
        wait_for("a success", lambda: gateway.webhooks()[receiver.url]["state"] == "well")
        assert gateway.webhooks()[receiver.url]["failing_since"] is None


def test_a_request_cannot_delete_it_and_learns_where_it_is_declared(gateway: Gateway) -> None:
    url = "http://127.0.0.1:9/hook?a=b"
    gateway.declare({"url": url, "events": DOWN})
    id = gateway.declared(url)[url]["id"]
    refused = gateway.api.send("DELETE", f"/webhooks/{id}")
    path = f'{PATH}."{url}"'
    message = f"The configuration declares it: delete {path}, and commit"
    assert (refused.status_code, refused.json()) == (409, {"status": "error", "message": message})
    assert gateway.declared(url)
    deleted = gateway.api.send("POST", "/system/config/delete", json={"path": path})
    assert deleted.status_code == 200, deleted.text
    assert gateway.api.send("POST", "/system/config/commit").status_code == 200
    assert gateway.declared() == {}


def test_a_commit_leaves_those_that_were_registered(gateway: Gateway, receiver: Receiver) -> None:
    body = {"url": receiver.url, "events": DOWN}
    registered = gateway.api.send("POST", "/webhooks", json=body).json()["data"]
    gateway.declare({"url": "http://127.0.0.1:9/", "events": DOWN})
    gateway.declared("http://127.0.0.1:9/")
    assert gateway.webhooks()[receiver.url] == registered
    assert registered["origin"] == "registered"
    assert gateway.api.send("DELETE", f"/webhooks/{registered['id']}").status_code == 200


def test_a_secret_is_shown_nowhere(gateway: Gateway, receiver: Receiver) -> None:
    shown = []
    for secret in (SECRET, ANOTHER):
        path = {"path": PATH, "value": [{"url": receiver.url, "events": DOWN, "secret": secret}]}
        shown.append(gateway.api.send("POST", "/system/config/set", json=path).text)
        shown += [
            gateway.api.send("GET", f"/system/config/{which}").text for which in ("compare", "candidate")
        ]
        shown.append(gateway.api.send("POST", "/system/config/commit").text)
    gateway.declared(receiver.url)
    shown += [
        gateway.api.send("GET", path).text
        for path in ("/system/config", "/system/config/archive/1", "/webhooks", "/audit", "/metrics")
    ]
    log = (gateway.state / "log").read_text()
    for secret in (SECRET, ANOTHER):
        assert not [text for text in (*shown, log) if secret.removeprefix("whsec_") in text]
    receivers = gateway.api.get("/system/config")["api"]["webhooks"]["receivers"]
    assert receivers == [{"url": receiver.url, "events": DOWN, "secret": "********"}]


@pytest.mark.parametrize(
    ("receiver", "field"),
    [
        ({"url": "gopher://noc.example/", "events": DOWN}, "url"),
        ({"url": "http://169.254.169.254/", "events": DOWN}, "url"),
        ({"url": 'http://noc.example/"', "events": DOWN}, "url"),
        ({"events": DOWN}, "url"),
        ({"url": "http://noc.example/", "events": []}, "events"),
        ({"url": "http://noc.example/", "events": ["session.sideways"]}, "events.0"),
        ({"url": "http://noc.example/", "events": DOWN * 2}, "events"),
        ({"url": "http://noc.example/", "events": DOWN, "secret": "short"}, "secret"),
        ({"url": "http://noc.example/", "events": DOWN, "colour": "red"}, "colour"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_staged(
    gateway: Gateway, receiver: dict[str, Any], field: str
) -> None:
    refused = gateway.api.send("POST", "/system/config/set", json={"path": PATH, "value": [receiver]})
    assert refused.status_code == 400
    assert [problem["path"] for problem in refused.json()["errors"]] == [f"{PATH}.0.{field}"]
    assert gateway.api.get("/system/config/compare", "admin")["diff"] == ""


def test_one_url_is_declared_once(gateway: Gateway) -> None:
    twice = [{"url": "http://noc.example/", "events": events} for events in (DOWN, BOTH)]
    refused = gateway.api.send("POST", "/system/config/set", json={"path": PATH, "value": twice})
    assert (refused.status_code, refused.json()["errors"][0]["path"]) == (400, f"{PATH}.1.url")


@pytest.mark.parametrize("process", [core_of, master_of])
def test_it_is_there_after_a_restart_of_the_core_and_of_the_api(
    gateway: Gateway, receiver: Receiver, process: Callable[["subprocess.Popen[bytes]"], int]
) -> None:
    gateway.declare({"url": receiver.url, "events": BOTH})
    id = gateway.declared(receiver.url)[receiver.url]["id"]
    restarted = process(gateway.process)
    gone = [restarted, *(workers_of(gateway.process) if process is master_of else [])]
    os.kill(restarted, signal.SIGKILL)
    wait_for("its end", lambda: not any(Path(f"/proc/{pid}").exists() for pid in gone))

    def answers() -> bool:
        try:
            return Api(gateway.api.environment).send("GET", "/health", None).status_code == 200
        except OSError:
            return False

    wait_for("the API to answer", answers)
    gateway.api = Api(gateway.api.environment)
    assert gateway.declared(receiver.url)[receiver.url]["id"] == id
    seen = len(receiver.received)

    def arrives() -> bool:
        sessions = gateway.api.get("/subscribers?limit=1")["sessions"]
        assert gateway.api.send("DELETE", f"/subscribers/{sessions[0]['id']}").status_code in (200, 404)
        return len(receiver.received) > seen

    wait_for("a delivery", arrives)


def test_a_hundred_are_declared_at_once_and_a_hundred_more_may_register(gateway: Gateway) -> None:
    urls = [f"http://127.0.0.1:9/{number}" for number in range(100)]
    gateway.declare(*({"url": url, "events": ["session.up"]} for url in urls))
    gateway.declared(*urls)
    with ExitStack() as registered:
        for number in range(100):
            body = {"url": f"http://127.0.0.1:9/more/{number}", "events": ["session.up"]}
            answered = gateway.api.send("POST", "/webhooks", json=body)
            assert answered.status_code == 201
            registered.callback(gateway.api.send, "DELETE", f"/webhooks/{answered.json()['data']['id']}")
        assert gateway.api.send("POST", "/webhooks", json=body).status_code == 409
    assert len(gateway.declared(*urls)) == 100
