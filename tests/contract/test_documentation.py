"""The README and the documentation tell the truth: every line works when pasted, in the order of the index
and in one shell, and prints what is shown. Every endpoint has a line."""

import os
import re
import subprocess
from configparser import ConfigParser
from pathlib import Path

import pytest
from marshmallow import validate

from gateway_api.events import streams
from gateway_api.hub.registry import MAX_WEBHOOKS
from gateway_api.serving.connections import Limits
from gateway_api.web.parse import MAX_BODY
from gateway_api.web.schemas.requests import EditConfiguration
from tests.support.manual import DOCS, PAGES, ROOT, blocks, script, wrong
from tests.support.routes import ROUTES
from tests.support.stack import free_port, running_stack

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


def test_every_line_works_when_pasted_and_prints_what_is_shown(tmp_path: Path) -> None:
    # So many that a session of the pages is hardly one of those that end by themselves.
    with running_stack(tmp_path, sessions=20_000, arrivals=1) as (api, _):
        # As pasted, but that an error status fails the test, and with another port for receivers.
        before = 'curl() { command curl --silent --show-error --fail-with-body "$@"; echo; }\n'
        before += "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n"
        lines = script(BLOCKS).replace("9000", str(free_port()))
        ended = subprocess.run(
            ["bash", "-eu", "-o", "pipefail"],
            input=before + lines.replace(". .run/environment", f". {tmp_path}/environment"),
            cwd=ROOT,
            # The contexts of gatewayctl.
            env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    # A reader keeps the backup.
    (ROOT / "gateway-2026-11-23.json").unlink()
    assert wrong(BLOCKS, ended.stdout.replace(api.url.rpartition("/")[2], "localhost:8443")) == []
    # The metrics are no JSON.
    curls = len(re.findall(r"^ *curl --cacert", lines, re.MULTILINE))
    assert ended.stdout.count('{"status":"ok"') == curls - len(
        re.findall(r"^ *curl.*/metrics", lines, re.MULTILINE)
    )
    assert "event: session_" in ended.stdout
    assert "svc_active_sessions_total" in ended.stdout


def test_the_quick_start_names_the_package_of_each_program_that_the_readme_runs() -> None:
    (sentence,) = re.findall(r"(?m)^On Debian 12 or 13 with (.*):$", (ROOT / "README.md").read_text())
    packages = set(re.findall(r"`([a-z0-9-]+)`", sentence))
    lines = "".join(block.lines for block in BLOCKS if block.where.startswith("README.md"))
    programs = set(re.findall(r"(?m)(?:^|\$\(|\| )([a-z][a-z0-9-]*)(?= )", lines))
    # Of the shell and coreutils, and what `make run` installs.
    assert programs - {"export", "cut", "gatewayctl"} <= packages
    assert "curl" in programs


@pytest.mark.parametrize("page", ["events", "webhooks"])
def test_the_stream_and_webhooks_name_the_events_of_both(page: str) -> None:
    text = (DOCS / "reference" / f"{page}.md").read_text()
    for name in ("session_up", "session_down", "session_rate", "session.up", "session.down", "session.rate"):
        assert f"`{name}`" in text


def test_the_index_has_every_page() -> None:
    assert {*PAGES[1:], DOCS / "index.md"} == set(DOCS.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.stem)
def test_every_page_ends_with_further_pages(page: Path) -> None:
    assert page.read_text().rpartition("\n## ")[2].startswith("See also\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    local = [link for link in links if not link.startswith("https://")]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_the_limits_of_the_page_are_those_of_the_code() -> None:
    page = (DOCS / "reference" / "api.md").read_text()
    rows = re.findall(r"(?m)^\| ([^|]+) \| ([^|]+) \|", page.partition("## Limits")[2].partition("\n## ")[0])
    numbers = [int(digits.replace(",", "")) for _, text in rows for digits in re.findall(r"[\d,]*\d", text)]
    limits, operations = Limits(), EditConfiguration().fields["operations"].validate
    assert isinstance(operations, validate.Length)
    assert numbers == [
        *(limits.in_all, limits.of_one_address, limits.for_loopback, streams.MOST, streams.MOST_OF_ONE),
        *(MAX_BODY >> 20, operations.max, MAX_WEBHOOKS),
        *(limits.header, limits.body, limits.idle),
    ]
    assert limits.handshake == limits.header


def test_every_message_of_the_troubleshooting_is_one_of_the_product() -> None:
    code = "".join(file.read_text() for file in (ROOT / "gateway_api").rglob("*.py"))
    joined = re.sub(r'"\s+f?"', "", code)
    page = (DOCS / "troubleshooting.md").read_text()
    messages = re.findall(r"^\| `([^`]+)`(?: \(\d+\))? \|", page, re.MULTILINE)
    assert len(messages) > 10
    for message in messages:
        # What is in capitals on the page varies, what there is too much of, and what cannot be done.
        for part in re.split(r"\b[A-Z]{3,}\b|(?<=^Too many) |(?<=^Cannot) \w+ ", message):
            assert part in joined, message


def test_the_readme_has_at_most_150_lines() -> None:
    assert len(PAGES[0].read_text().splitlines()) <= 150


def test_every_dependency_has_a_line_saying_why() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    extras = "".join(setup["options.extras_require"].values())
    declared = re.findall(r"(?m)^[a-z][\w-]+", setup["options"]["install_requires"] + extras)
    declared += re.findall(r"(?m)^[a-z][\w-]+", (ROOT / "requirements/docs.in").read_text())
    assert len(declared) > 10
    reasons = (ROOT / "CONTRIBUTING.md").read_text()
    for name in declared:
        assert re.search(rf"^\| [^|]*\b{name}\b[^|]* \| .{{8,}} \|$", reasons, re.MULTILINE), name
