"""A running gateway, and webhooks of it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import standardwebhooks
from prometheus_client.parser import text_string_to_metric_families

from tests.support.prometheus import scrape
from tests.support.receivers import Received
from tests.support.stack import Api, wait_for

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
DOWN, BOTH = ["session.down"], ["session.up", "session.down"]
DECLARED = "api.webhooks.receivers"


class Gateway:
    """A stack in which nothing happens by itself; each disconnect is one event."""

    def __init__(self, api: Api, process: "subprocess.Popen[bytes]", state: Path) -> None:
        self.api = api
        self.process = process
        self.state = state
        self._ids = count(1)

    def disconnect(self) -> int:
        """End one session, and return its id."""
        id = next(self._ids)
        answered = self.api.send("DELETE", f"/subscribers/{id}")
        assert answered.status_code == 200, answered.text
        return id

    @contextmanager
    def webhook(self, url: str, events: list[str] = DOWN, secret: str | None = None) -> Iterator[str]:
        """Register a webhook until the end of the block, and yield its id."""
        id = register(self.api, url, events, secret)
        try:
            yield id
        finally:
            self.api.send("DELETE", f"/webhooks/{id}")

    def commit(self, path: str, value: Any) -> None:
        body = {"path": path, "value": value}
        for action, sent in (("set", body), ("commit", None)):
            answered = self.api.send("POST", f"/system/config/{action}", json=sent)
            assert answered.status_code == 200, answered.text

    def declare(self, *receivers: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Commit these webhooks, and no others. Returns the declared webhooks by URL, once they are these."""
        self.commit(DECLARED, receivers)
        urls = {receiver["url"] for receiver in receivers}
        wait_for("the declared webhooks", lambda: self.declared().keys() == urls)
        return self.declared()

    def declared(self) -> dict[str, dict[str, Any]]:
        webhooks = self.api.get("/webhooks")["webhooks"]
        return {one["url"]: one for one in webhooks if one["origin"] == "declared"}

    def test(self, id: str) -> str:
        """Send a test message, and return its id."""
        answered = self.api.send("POST", f"/webhooks/{id}/test")
        assert answered.status_code == 200, answered.text
        message: str = answered.json()["data"]["message_id"]
        return message

    def log(self, id: str, entries: int = 0) -> list[dict[str, Any]]:
        """Return the delivery log, newest first, once it has so many entries."""

        def read() -> Any:
            return self.api.get(f"/webhooks/{id}/deliveries")["deliveries"]

        wait_for(f"{entries} entries in the log", lambda: len(read()) >= entries)
        found: list[dict[str, Any]] = read()
        return found


def register(api: Api, url: str, events: list[str], secret: str | None = None) -> str:
    body = {"url": url, "events": events, **({"secret": secret} if secret else {})}
    answered = api.send("POST", "/webhooks", json=body)
    assert answered.status_code == 201, answered.text
    id: str = answered.json()["data"]["id"]
    return id


def metrics(api: Api) -> dict[str, float]:
    """Return the samples about webhooks, without their common prefix."""
    return {
        sample.name.removeprefix("gateway_api_webhook") + "".join(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(scrape(api).text)
        for sample in family.samples
        if sample.name.startswith("gateway_api_webhook")
    }


def verified(request: Received, secret: str = SECRET) -> Any:
    """Return the body if the signature is right. The package raises if not."""
    return standardwebhooks.Webhook(secret).verify(request.body, dict(request.headers))
