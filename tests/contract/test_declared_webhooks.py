"""Webhooks that the configuration declares: there after a commit, and ended by a commit only."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.receivers import OK, Receiver, answer
from tests.support.stack import running_stack, wait_for
from tests.support.webhooks import BOTH, DECLARED, DOWN, SECRET, Gateway, verified

ANOTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


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


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver(OK) as made:
        yield made


def test_a_declared_webhook_gets_signed_events_from_its_commit_until_a_commit_ends_it(
    gateway: Gateway, receiver: Receiver
) -> None:
    with gateway.webhook("http://127.0.0.1:9/registered") as registered:
        webhook = gateway.declare({"url": receiver.url, "events": DOWN, "secret": SECRET})[receiver.url]
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
        gateway.log(webhook["id"], 1)
        (request,) = receiver.received
        assert json.loads(request.body)["data"]["id"] == id
        verified(request)
        # A request can't delete it, and learns where it is declared.
        refused = gateway.api.send("DELETE", f"/webhooks/{webhook['id']}")
        path = f'{DECLARED}."{receiver.url}"'
        message = f"The configuration declares it: delete {path}, and commit"
        assert (refused.status_code, refused.json()) == (409, {"status": "error", "message": message})
        assert gateway.declared()
        gateway.api.send("POST", "/system/config/delete", json={"path": path})
        assert gateway.api.send("POST", "/system/config/commit").status_code == 200
        wait_for("its end", lambda: gateway.declared() == {})
        assert gateway.api.send("GET", f"/webhooks/{webhook['id']}").status_code == 404
        assert gateway.api.get(f"/webhooks/{registered}")["origin"] == "registered"


def test_a_receiver_that_fails_in_a_row_is_paused_also_over_a_commit_and_well_again_after_a_success(
    gateway: Gateway, receiver: Receiver
) -> None:
    replies = [answer(503)]
    with Receiver(lambda *_: replies[0]) as failing:
        webhook = gateway.declare({"url": failing.url, "events": DOWN})[failing.url]
        gateway.disconnect()
        (first,) = gateway.log(webhook["id"], 1)
        before = gateway.declared()[failing.url]
        assert (before["state"], before["failing_since"]) == ("failing", first["started_at"])
        for _ in range(2):
            gateway.disconnect()
        gateway.log(webhook["id"], 3)
        before = gateway.declared()[failing.url]
        assert (before["state"], before["failing_since"]) == ("paused", first["started_at"])
        assert before["paused_until"] > before["failing_since"]
        # What a commit leaves as it is keeps its state and its log.
        after = gateway.declare({"url": receiver.url, "events": BOTH}, {"url": failing.url, "events": DOWN})[
            failing.url
        ]
        assert after["failing_since"] == first["started_at"]
        assert gateway.log(webhook["id"])[-1] == first
        replies[0] = OK
        gateway.test(webhook["id"])
        wait_for("a success", lambda: gateway.declared()[failing.url]["state"] == "well")
        assert gateway.declared()[failing.url]["failing_since"] is None


def test_a_secret_is_shown_nowhere(gateway: Gateway, receiver: Receiver) -> None:
    api, shown = gateway.api, []
    for secret in (SECRET, ANOTHER):
        body = {"path": DECLARED, "value": [{"url": receiver.url, "events": DOWN, "secret": secret}]}
        shown.append(api.send("POST", "/system/config/set", json=body).text)
        shown += [api.send("GET", f"/system/config/{which}").text for which in ("compare", "candidate")]
        shown.append(api.send("POST", "/system/config/commit").text)
    for path in ("/system/config", "/system/config/archive/1", "/webhooks", "/audit", "/metrics"):
        shown.append(api.send("GET", path).text)
    shown.append((gateway.state / "log").read_text())
    assert not [
        text for text in shown for secret in (SECRET, ANOTHER) if secret.removeprefix("whsec_") in text
    ]
    receivers = api.get("/system/config")["api"]["webhooks"]["receivers"]
    assert receivers == [{"url": receiver.url, "events": DOWN, "secret": "********"}]


def test_what_is_wrong_is_named_and_nothing_is_staged(gateway: Gateway) -> None:
    right = {"url": "http://noc.example/", "events": DOWN}
    wrong: list[tuple[list[dict[str, Any]], str]] = [
        ([{**right, "url": "http://169.254.169.254/"}], "0.url"),
        ([{**right, "url": 'http://noc.example/"'}], "0.url"),
        ([{"events": DOWN}], "0.url"),
        ([{**right, "events": []}], "0.events"),
        ([{**right, "events": ["session.sideways"]}], "0.events.0"),
        ([{**right, "events": DOWN * 2}], "0.events"),
        ([{**right, "secret": "short"}], "0.secret"),
        ([{**right, "colour": "red"}], "0.colour"),
        # One URL is declared once.
        ([right, {**right, "events": BOTH}], "1.url"),
    ]
    for receivers, field in wrong:
        body = {"path": DECLARED, "value": receivers}
        refused = gateway.api.send("POST", "/system/config/set", json=body)
        assert refused.status_code == 400
        assert [problem["path"] for problem in refused.json()["errors"]] == [f"{DECLARED}.{field}"]
    assert gateway.api.get("/system/config/compare", "admin")["diff"] == ""


def test_a_hundred_are_declared_at_once_and_a_hundred_more_may_register(gateway: Gateway) -> None:
    urls = [f"http://127.0.0.1:9/{number}" for number in range(100)]
    gateway.declare(*({"url": url, "events": ["session.up"]} for url in urls))
    with ExitStack() as registered:
        for number in range(100):
            registered.enter_context(gateway.webhook(f"http://127.0.0.1:9/more/{number}"))
        body = {"url": "http://127.0.0.1:9/", "events": DOWN}
        refused = gateway.api.send("POST", "/webhooks", json=body)
        message = "There are 100 webhooks, which is the most there may be"
        assert (refused.status_code, refused.json()) == (409, {"status": "error", "message": message})
    assert len(gateway.declared()) == 100
