"""How the live page is served: whole, strict, to everybody, and without anything of the gateway in it."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.support.stack import Api, core_of, running_stack

FOLDER = Path(__file__).parents[2] / "gateway_api" / "web" / "page"
FILES = sorted(path.name for path in FOLDER.iterdir())
MODULES = [name for name in FILES if name.endswith(".js")]
TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY = {
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
    "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
}  # fmt: skip


def ask(api: Api, path: str, method: str = "GET", **headers: str) -> requests.Response:
    """Without a token."""
    return api.session.request(method, api.url + path, headers=headers, timeout=60)


def text_of(name: str) -> str:
    return (FOLDER / name).read_text()


@pytest.mark.parametrize("name", FILES)
def test_a_part_of_the_page_is_served_to_everybody_as_what_it_is(api: Api, name: str) -> None:
    answer = ask(api, f"/page/{name}")
    assert answer.status_code == 200
    assert answer.text == text_of(name)
    assert answer.headers["Content-Type"] == TYPES[name.rpartition(".")[2]]


def test_the_page_is_at_the_root(api: Api) -> None:
    answer = ask(api, "/")
    assert answer.text == text_of("index.html")


@pytest.mark.parametrize("path", ["/", "/page/main.js"])
def test_the_browser_may_do_nothing_that_the_page_does_not_need(api: Api, path: str) -> None:
    headers = ask(api, path).headers
    assert set(headers["Content-Security-Policy"].split("; ")) == POLICY
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize("path", ["/", "/page/main.js"])
def test_a_browser_asks_each_time_and_is_told_when_it_has_the_newest(api: Api, path: str) -> None:
    first = ask(api, path)
    assert first.headers["Cache-Control"] == "no-cache"
    again = ask(api, path, **{"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["Content-Security-Policy"]
    older = ask(api, path, **{"If-None-Match": '"older"'})
    assert older.content == first.content


@pytest.mark.parametrize(
    "path", ["/page/", "/page/nothing.js", "/page/../page.py", "/page/%2e%2e%2fpage.py", "/x"]
)
def test_nothing_else_is_served(api: Api, path: str) -> None:
    # As it stands: requests would resolve the dots.
    prepared = requests.Request("GET", api.url).prepare()
    prepared.url = api.url + path
    answer = api.session.send(prepared, timeout=60)
    assert answer.status_code == 404
    assert answer.json()["status"] == "error"


@pytest.mark.parametrize("path", ["/", "/page/main.js"])
def test_a_query_is_ignored(api: Api, path: str) -> None:
    assert ask(api, f"{path}?theme=dark").content == ask(api, path).content


@pytest.mark.parametrize("path", ["/", "/page/main.js"])
def test_another_method_is_405(api: Api, path: str) -> None:
    answer = ask(api, path, "POST")
    assert (answer.status_code, answer.json()["status"]) == (405, "error")


def test_every_module_is_asked_for_by_the_page_or_another_module() -> None:
    text = "".join((FOLDER / name).read_text() for name in FILES)
    asked_for = set(re.findall(r"/([a-z]+\.[a-z]+)[\"']", text))
    assert set(FILES) - {"index.html"} == asked_for


@pytest.mark.parametrize("name", MODULES)
def test_data_cannot_become_markup_or_code(name: str) -> None:
    text = (FOLDER / name).read_text()
    ways = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|setHTML|DOMParser|\beval\b|Function\(|srcdoc"
    )
    assert re.findall(ways, text) == []


@pytest.mark.parametrize("name", MODULES)
def test_a_module_keeps_nothing_in_the_browser_but_the_columns_of_a_list(name: str) -> None:
    text = (FOLDER / name).read_text()
    ways = r"localStorage|sessionStorage|indexedDB|cookie|caches\b|history\."
    assert set(re.findall(ways, text)) == ({"localStorage"} if name == "columns.js" else set())


@pytest.fixture
def lonely(tmp_path: Path) -> Iterator[tuple[Api, int]]:
    """A gateway of one's own, and its core's process."""
    with running_stack(tmp_path, sessions=1) as (api, process):
        yield api, core_of(process)


def test_the_page_is_served_while_the_core_hangs(lonely: tuple[Api, int]) -> None:
    api, core = lonely
    os.kill(core, signal.SIGSTOP)
    try:
        assert ask(api, "/").status_code == 200
        assert ask(api, "/page/main.js").status_code == 200
    finally:
        os.kill(core, signal.SIGCONT)


@pytest.fixture
def disabled(lonely: tuple[Api, int]) -> Api:
    api, _ = lonely
    api.send("POST", "/system/config/set", json={"path": "api.enabled", "value": False})
    assert api.send("POST", "/system/config/commit").ok
    return api


def test_a_disabled_api_has_no_page_and_tells_browsers_and_programs_how_to_enable_it(disabled: Api) -> None:
    refused = disabled.log_in("admin", "whatever")
    message = refused.json()["message"]
    assert refused.status_code == 503
    assert "api.enabled" in message
    assert "gateway-api rescue enable" in message
    for path in ("/", "/page/main.js"):
        answer = ask(disabled, path)
        assert (answer.status_code, answer.json()["message"]) == (503, message)
    assert ask(disabled, "/page/main.js", Accept="text/html").json()["message"] == message
    shown = ask(disabled, "/", Accept="text/html,application/xhtml+xml,*/*;q=0.8")
    assert (shown.status_code, shown.headers["Content-Type"]) == (503, TYPES["html"])
    assert f'<p role="alert">{message}</p>' in shown.text
    assert "default-src 'none'" in shown.headers["Content-Security-Policy"]
    assert shown.headers["Cache-Control"] == "no-store"
    assert shown.headers["X-Request-ID"]
