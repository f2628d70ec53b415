"""How the pages for browsers are served: whole, strict, to everybody, and without anything of the gateway."""

import re
from pathlib import Path

import pytest
import requests

from tests.support.stack import Api, running_stack

FOLDER = Path(__file__).parents[2] / "gateway_api" / "web" / "page"
FILES = {path.name: path.read_text() for path in FOLDER.iterdir()}
TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
}
POLICY = {
    "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self'", "connect-src 'self'",
    "base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'",
}  # fmt: skip


def ask(api: Api, path: str, method: str = "GET", **headers: str) -> requests.Response:
    """Without a token, and with the path as it stands: requests would resolve dots."""
    prepared = requests.Request(method, api.url, headers=headers).prepare()
    prepared.url = api.url + path
    return api.session.send(prepared, timeout=60)


def test_every_part_of_the_live_page_is_served_to_everybody(api: Api) -> None:
    assert ask(api, "/").text == FILES["index.html"]
    for name, text in FILES.items():
        answer = ask(api, f"/page/{name}?theme=dark")
        assert (answer.status_code, answer.text) == (200, text)
        assert answer.headers["Content-Type"] == TYPES[name.rpartition(".")[2]]


@pytest.mark.parametrize("path", ["/", "/page/main.js"])
def test_a_browser_may_do_only_what_the_live_page_needs_and_checks_for_the_newest(
    api: Api, path: str
) -> None:
    first = ask(api, path)
    assert set(first.headers["Content-Security-Policy"].split("; ")) == POLICY
    assert first.headers["X-Content-Type-Options"] == "nosniff"
    assert first.headers["Referrer-Policy"] == "no-referrer"
    assert first.headers["Cache-Control"] == "no-cache"
    again = ask(api, path, **{"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["Content-Security-Policy"]
    assert ask(api, path, **{"If-None-Match": '"older"'}).content == first.content
    refused = ask(api, path, "POST")
    assert (refused.status_code, refused.json()["status"]) == (405, "error")


def test_data_cannot_become_markup_or_code_and_only_columns_are_kept_in_the_browser() -> None:
    modules = {name: text for name, text in FILES.items() if name.endswith(".js")}
    markup = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|setHTML|DOMParser|\beval\b|Function\(|srcdoc"
    )
    kept = r"localStorage|sessionStorage|indexedDB|cookie|caches\b|history\."
    assert {name: found for name, text in modules.items() if (found := re.findall(markup, text))} == {}
    stores = {name: set(re.findall(kept, text)) for name, text in modules.items()}
    assert {name: found for name, found in stores.items() if found} == {"columns.js": {"localStorage"}}


def test_the_reference_page_has_parts_that_browsers_keep_for_ever(api: Api) -> None:
    page = ask(api, "/api/v1/docs")
    assert page.headers["Content-Type"] == TYPES["html"]
    policy = page.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
    assert "unsafe" not in policy
    parts = re.findall(r'(?:src|href)="(docs/[^"]+)"', page.text)
    assert len(parts) == 5
    for part in parts:
        answer = ask(api, f"/api/v1/{part}")
        assert answer.headers["Content-Type"] == TYPES[part.rpartition(".")[2]]
        assert answer.headers["Cache-Control"] == "public, max-age=31536000, immutable"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        *("/page/", "/page/nothing.js", "/page/../page.py", "/page/%2e%2e%2fpage.py", "/x"),
        *("/api/v1/docs/0/docs.js", "/api/v1/docs/{digest}/docs.html", "/api/v1/docs/{digest}/..%2fx"),
        *("/docs/nothing.html", "/docs/../etc/passwd", "/docs/objects.inv"),
    ],
)
def test_nothing_else_is_served(api: Api, path: str) -> None:
    (digest, *_) = re.findall(r'"docs/(\w+)/', ask(api, "/api/v1/docs").text)
    answer = ask(api, path.format(digest=digest))
    assert (answer.status_code, answer.json()["status"]) == (404, "error")


def test_a_disabled_api_has_no_page_and_tells_browsers_and_programs_how_to_enable_it(tmp_path: Path) -> None:
    with running_stack(tmp_path, sessions=1) as (api, _):
        api.send("POST", "/system/config/set", json={"path": "api.enabled", "value": False})
        assert api.send("POST", "/system/config/commit").ok
        refused = api.log_in("admin", "whatever")
        message = refused.json()["message"]
        assert refused.status_code == 503
        assert "api.enabled" in message
        assert "gateway-api rescue enable" in message
        for path in ("/", "/page/main.js"):
            answer = ask(api, path)
            assert (answer.status_code, answer.json()["message"]) == (503, message)
        assert ask(api, "/page/main.js", Accept="text/html").json()["message"] == message
        shown = ask(api, "/", Accept="text/html,application/xhtml+xml,*/*;q=0.8")
        assert (shown.status_code, shown.headers["Content-Type"]) == (503, TYPES["html"])
        assert f'<p role="alert">{message}</p>' in shown.text
        assert "default-src 'none'" in shown.headers["Content-Security-Policy"]
        assert shown.headers["Cache-Control"] == "no-store"
        assert shown.headers["X-Request-ID"]
