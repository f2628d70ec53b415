"""The documentation has every endpoint and event, and the limits and messages of the product."""

import re

import pytest
from marshmallow import validate

from gateway_api import events
from gateway_api.hub.service import MAX_WEBHOOKS
from gateway_api.serving.connections import Limits
from gateway_api.web.parse import MAX_BODY_BYTES
from gateway_api.web.schemas.requests import EditConfigurationSchema
from tests.support.manual import DOCS, PAGES, ROOT, blocks
from tests.support.routes import ROUTES

BLOCKS = blocks("sh")


def test_every_endpoint_has_a_curl_line() -> None:
    text = "".join(block.lines for block in BLOCKS)
    for route in (route for route in ROUTES if not route.part_of_a_page):
        relative = route.path.replace("{id}", "$SESSION").replace("{revision}", "1")
        relative = relative.replace("{webhook}", "$WEBHOOK").replace("{job}", "$JOB")
        path = relative if relative == "/metrics" else f"/api/v1{relative}"
        assert re.search(re.escape("$GATEWAY_URL" + path) + r'["?]', text), route
        if route.method in ("PUT", "DELETE"):
            assert f"-X {route.method} " in text


@pytest.mark.parametrize("page", ["events", "webhooks"])
def test_the_stream_and_webhooks_name_the_events_of_both(page: str) -> None:
    text = (DOCS / "reference" / f"{page}.md").read_text()
    for name in ("session_up", "session_down", "session_rate", "session.up", "session.down", "session.rate"):
        assert f"`{name}`" in text


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    page = (DOCS / "reference" / "api.md").read_text()
    rows = re.findall(r"(?m)^\| ([^|]+) \| ([^|]+) \|", page.partition("## Limits")[2].partition("\n## ")[0])
    numbers = [int(digits.replace(",", "")) for _, text in rows for digits in re.findall(r"[\d,]*\d", text)]
    limits, operations = Limits(), EditConfigurationSchema().fields["operations"].validate
    assert isinstance(operations, validate.Length)
    assert numbers == [
        *(
            limits.max_connections,
            limits.max_per_address,
            limits.loopback_reserve,
            events.MAX_STREAMS,
            events.MAX_STREAMS_OF_CLIENT,
        ),
        *(MAX_BODY_BYTES >> 20, operations.max, MAX_WEBHOOKS),
        *(limits.header, limits.body, limits.idle),
    ]
    assert limits.handshake == limits.header


def test_every_message_of_the_troubleshooting_is_one_of_the_product() -> None:
    code = "".join(file.read_text() for file in ROOT.glob("gateway*/**/*.py"))
    joined = re.sub(r'"\s+f?"', "", code)
    page = (DOCS / "troubleshooting.md").read_text()
    messages = re.findall(r"^\| `([^`]+)`(?: \(\d+\))? \|", page, re.MULTILINE)
    assert len(messages) > 10
    for message in messages:
        # What is in capitals on the page varies, what there is too much of, and what cannot be done.
        for part in re.split(r"\b[A-Z]{3,}\b|(?<=^Too many) |(?<=^Cannot) \w+ ", message):
            assert part in joined, message


def test_every_link_leads_to_a_file() -> None:
    for page in PAGES:
        links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
        local = [link for link in links if not link.startswith("https://")]
        assert [link for link in local if not (page.parent / link).exists()] == [], page
