"""The README and the documentation tell the truth: every line works when pasted, in the order of the index
and in one shell, and prints what is shown. Every endpoint has a line."""

import os
import re
import subprocess
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.routes import ROUTES
from tests.support.stack import free_port, running_stack

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: Separates the outputs of blocks.
_MARK = "\x1e"


def _listed() -> list[Path]:
    """The pages in the order of the index."""
    tables = re.findall(
        r"^```\{toctree\}\n(.*?)^```", (DOCS / "index.md").read_text(), re.MULTILINE | re.DOTALL
    )
    names = [line for table in tables for line in table.splitlines() if line and not line.startswith(":")]
    return [DOCS / f"{name}.md" for name in names]


PAGES = [ROOT / "README.md", *_listed()]


@dataclass(frozen=True)
class Block:
    """Lines for a shell, and what they print as the page shows it: `...` stands for anything."""

    where: str
    lines: str
    shown: str | None

    def printed(self, output: str, port: str) -> bool:
        if self.shown is None:
            return True
        shown = self.shown.strip().replace("8443", port)
        pattern = ".*?".join(re.escape(part.strip(" ")) for part in shown.split("..."))
        return re.fullmatch(pattern, output.strip(), re.DOTALL) is not None


def _blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = re.finditer(
        r"^( *)```sh\n(.*?)^ *```\n(?:\n\1```text\n(.*?)^ *```\n)?", text, re.MULTILINE | re.DOTALL
    )
    return [
        Block(
            f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}",
            _outdented(match[2], match[1]),
            None if match[3] is None else _outdented(match[3], match[1]),
        )
        for match in found
    ]


def _outdented(lines: str, margin: str) -> str:
    return re.sub(f"^{margin}", "", lines, flags=re.MULTILINE)


BLOCKS = [block for page in PAGES for block in _blocks(page)]


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
        lines = "".join(f"printf '{_MARK}'\necho '{block.where}' >&2\n{block.lines}" for block in BLOCKS)
        # As pasted, but that an error status fails the test, and with another port for receivers.
        script = 'curl() { command curl --silent --show-error --fail-with-body "$@"; echo; }\n'
        script += "trap 'kill $(jobs -p) 2> /dev/null || true' EXIT\n"
        lines = lines.replace("9000", str(free_port()))
        # What a reader sees as a comment.
        lines = re.sub(r"  # exit status (\d+).*", r" || [ $? = \1 ]", lines)
        ended = subprocess.run(
            ["bash", "-eu", "-o", "pipefail"],
            input=script + lines.replace(". .run/environment", f". {tmp_path}/environment"),
            cwd=ROOT,
            # The contexts of gatewayctl.
            env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "home")},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    outputs = ended.stdout.split(_MARK)[1:]
    assert len(outputs) == len(BLOCKS)
    wrong = [
        f"{block.where}: {output}"
        for block, output in zip(BLOCKS, outputs, strict=True)
        if not block.printed(output, api.url.rpartition(":")[2])
    ]
    assert wrong == []
    # The metrics are no JSON.
    curls = len(re.findall(r"^ *curl --cacert", lines, re.MULTILINE))
    assert ended.stdout.count('{"status":"ok"') == curls - len(
        re.findall(r"^ *curl.*/metrics", lines, re.MULTILINE)
    )
    assert "event: session_" in ended.stdout
    assert "svc_active_sessions_total" in ended.stdout


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
    declared += re.findall(r"(?m)^[a-z][\w-]+", (ROOT / "requirements-docs.in").read_text())
    assert len(declared) > 10
    reasons = (ROOT / "CONTRIBUTING.md").read_text()
    for name in declared:
        assert re.search(rf"^\| [^|]*\b{name}\b[^|]* \| .{{8,}} \|$", reasons, re.MULTILINE), name
