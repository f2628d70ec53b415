"""Every route, over TLS against the running stack: its access, its response, what it rejects.

Every route gets one wrong request of each kind; all variants of a kind go to one route, because the code that
rejects them is one for all routes.
"""

import json
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from gateway_api.base.settings import Settings
from gateway_api.web.app import create_app
from gateway_api.web.records import OpenApi
from gateway_api.web.services import UserServices
from tests.support.prometheus import scrape
from tests.support.records import OF_A_PAGE, assert_is
from tests.support.requests import BITES, NOBODY, WRONG_IDS, assert_civil, assert_invalid
from tests.support.routes import ADMIN, ALWAYS, ANY_ROLE, OPEN, PAGES, ROUTES, Route
from tests.support.stack import PATIENCE, Api, wait_for

NOT_ADMIN = {"detail": "Admin role required"}

WITH_TOKEN = [route for route in ROUTES if route.access not in (ALWAYS, OPEN)]
#: Those whose answer is all there is to it.
ENDING = [r for r in WITH_TOKEN if not r.path.startswith("/auth/logout") and not r.streams]
WITH_BODY = [route for route in ROUTES if route.body is not None]
WITH_ID = [route for route in ROUTES if "{" in route.path]
LISTS = [route for route in ROUTES if route.paged is not None]


def named(routes: list[Route]) -> Any:
    return pytest.mark.parametrize("route", routes, ids=str)


@pytest.fixture(scope="module")
def session_ids(api: Api) -> Iterator[int]:
    """Sessions that are there: other modules may have disconnected the first. A test may disconnect one."""
    return iter([item["id"] for item in api.get("/subscribers")["sessions"]][100:])


@pytest.fixture(scope="module", autouse=True)
def _something_of_each_kind(api: Api) -> Iterator[None]:
    """There are a revision and a registration to look at, and no job goes on in other modules."""
    api.send("POST", "/system/config/set", json={"path": "system.hostname", "value": "bng0"})
    assert api.send("POST", "/system/config/commit").ok
    body = {"url": "http://127.0.0.1:9/", "events": ["session.down"]}
    assert api.send("POST", "/webhooks", json=body).ok
    yield
    for job in api.get("/subscribers/jobs")["jobs"]:
        if job["state"] == "running":
            api.send("DELETE", f"/subscribers/jobs/{job['id']}")


def send(
    api: Api,
    route: Route,
    role: str | None,
    id: object = 1,
    revision: object = 1,
    webhook: object = None,
    job: object = None,
    **more: Any,
) -> requests.Response:
    """The request of a route as it would work, unless `more` changes it."""
    body = route.body or route.may_have
    if "data" not in more and body is not None:
        more.setdefault("json", body)
    path = route.path.replace("{id}", str(id)).replace("{revision}", str(revision))
    if "{job}" in path:
        path = path.replace("{job}", str(job or running_job(api)))
    if "{webhook}" in path:
        (registered, *_) = api.get("/webhooks")["webhooks"]
        path = path.replace("{webhook}", str(webhook or registered["id"]))
    answer = api.send(route.method, path, role, **more)
    assert_civil(answer)
    return answer


def running_job(api: Api) -> int:
    jobs = [job["id"] for job in api.get("/subscribers/jobs")["jobs"] if job["state"] == "running"]
    if jobs:
        return int(jobs[0])
    # A session a second, on one VLAN: other tests have the others.
    body = {"filter": {"interface": "trunk0.1000"}, "rate_down": "50 Mbit", "per_second": 1}
    return int(api.send("POST", "/subscribers/rate", json=body).json()["data"]["id"])


def fits(route: Route, answer: requests.Response) -> None:
    assert answer.status_code == route.status, answer.text
    document = answer.json()
    if route.bare is not None:
        assert_is(route.bare, document, may_have_more=route.bare is OpenApi)
        return
    assert document["status"] == "ok"
    assert set(document) == {"status", "data"}
    if route.nothing:
        assert document["data"] is None
        return
    assert route.data is not None
    assert_is(route.data, document["data"])
    if route.paged is not None:
        assert not OF_A_PAGE & set(document["data"])


# The table


def test_the_application_has_exactly_the_routes_of_the_table(tmp_path: Path) -> None:
    settings = Settings(tmp_path / "none", tmp_path, b"-" * 32, tmp_path, audit=tmp_path)
    app = create_app(UserServices(settings))
    there = {
        (method, re.sub(r"<(\w+:)?(\w+)>", r"{\2}", rule.rule))
        for rule in app.url_map.iter_rules()
        for method in rule.methods or ()
        if method != "HEAD"
    }
    expected = {
        (route.method, route.path if route.path == "/metrics" else f"/api/v1{route.path}") for route in ROUTES
    }
    assert there == expected | {("GET", path) for path in PAGES}


# Access


def test_without_a_valid_token_it_is_401_and_nothing_is_said_of_the_request(api: Api) -> None:
    for route in WITH_TOKEN:
        answer = send(api, route, None, id="abc", params={"typo": "pppoe"}, data=b"{")
        assert (answer.status_code, answer.json()) == (401, NOBODY), route
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    for value in ("Bearer x.y.z", "Bearer", "Basic YTpi", "bearer  ", "\u00e9"):
        answer = api.send("GET", "/subscribers", None, headers={"Authorization": value.encode()})
        assert (answer.status_code, answer.json()) == (401, NOBODY), value


def test_an_operator_is_refused_before_the_body_is_read(api: Api) -> None:
    for route in ROUTES:
        if route.access == ADMIN:
            answer = send(api, route, "operator", id="abc", data=b"{")
            assert (answer.status_code, answer.json()) == (403, NOT_ADMIN), route


@named(ENDING)
def test_a_caller_with_access_gets_what_the_route_promises(
    api: Api, route: Route, session_ids: Iterator[int]
) -> None:
    for role in ("admin",) if route.access == ADMIN else ("operator", "admin"):
        fits(route, send(api, route, role, id=next(session_ids)))


def test_what_is_open_needs_no_token(api: Api) -> None:
    for route in ROUTES:
        if route.access == ALWAYS and route.data:
            fits(route, send(api, route, None))
    samples = dict(line.split(" ") for line in scrape(api).text.splitlines() if not line.startswith("#"))
    counts = api.get("/subscribers/summary")
    assert float(samples["gateway_api_core_up"]) == 1
    assert float(samples["svc_active_sessions_total"]) == counts["total"]
    assert float(samples["svc_qos_sessions"]) == counts["total"]
    assert float(samples["svc_vrf_steered_sessions"]) == api.get("/cgnat/stats")["vrf_steered_sessions"]


# Records


@named(LISTS)
def test_the_pages_together_are_the_whole(api: Api, route: Route) -> None:
    assert route.paged is not None
    (name,) = set(route.paged.__struct_fields__) - {"count", "rate_limited_total", "refusals", *OF_A_PAGE}
    whole = api.get(route.path)[name]
    pages, query = [], {"limit": "97"}
    while query.get("cursor", "") is not None:
        page = api.get(route.path, params=query)
        assert_is(route.paged, page)
        assert (page["total"], page["count"]) == (len(whole), len(page[name]))
        assert page["count"] == 97 or page["next_cursor"] is None
        pages += page[name]
        query["cursor"] = page["next_cursor"]
    # One that has the form of a cursor, but of another list.
    query["cursor"] = "WyIiLFt7fV1d"
    assert_invalid(send(api, route, "operator", params=query), "cursor")
    assert [unmoved(item) for item in pages] == [unmoved(item) for item in whole]


def unmoved(item: dict[str, Any]) -> dict[str, Any]:
    """A record without what the running job and the traffic change meanwhile."""
    moving = ("stats", "rate_down", "rate_down_bps", "done", "failed", "gone")
    return {key: value for key, value in item.items() if key not in moving}


# Wrong paths and ids


def test_an_id_or_a_path_of_nothing_is_404(api: Api) -> None:
    for route in WITH_ID:
        answer = send(api, route, "admin", id="0", revision="0", webhook="0", job="0")
        assert (answer.status_code, answer.json()["status"]) == (404, "error"), route
    paths = ["/", "/nope", "//subscribers", "/subscribers/", "/subscribers/1/rates", "/%ff", "/%00"]
    for above in ("/subscribers", "/system/config/archive", "/webhooks"):
        paths += [f"{above}/{id}" for id in WRONG_IDS]
    for path in paths:
        answer = api.send("GET", path)
        assert_civil(answer)
        assert (answer.status_code, answer.json()["status"]) == (404, "error"), path


# Wrong bodies


RATE = "/subscribers/1/rate"


@pytest.mark.parametrize("data", BITES.values(), ids=BITES.keys())
def test_a_body_that_is_no_json_object_is_400(api: Api, data: bytes) -> None:
    answer = api.send("PUT", RATE, data=data)
    assert_civil(answer)
    assert_invalid(answer, "")


@named(WITH_BODY)
def test_a_field_that_is_missing_of_the_wrong_type_or_of_no_name_is_400(api: Api, route: Route) -> None:
    body = dict(route.body or {})
    assert_invalid(send(api, route, "admin", json={**body, "extra": 1}), "extra")
    for name, good in body.items():
        for value in (None, True, 1, 1.5, ["x"], {"a": 1}):
            if name in route.free or (type(value) is type(good) and not isinstance(value, list)):
                continue
            assert_invalid(send(api, route, "admin", json={**body, name: value}), name)
        if not route.partial:
            rest = {key: given for key, given in body.items() if key != name}
            assert_invalid(send(api, route, "admin", json=rest), name)


def test_a_body_over_a_mebibyte_is_413_however_it_is_sent(api: Api) -> None:
    whole = b'{"rate_down": "1m"}'.ljust(1 << 20)
    assert api.send("PUT", RATE, data=whole + b" ").status_code == 413
    assert api.send("PUT", RATE, data=iter([whole, b" "])).status_code == 413
    # Nothing of the body is wrong but the last byte.
    assert_invalid(api.send("PUT", RATE, data=iter([whole[:5], whole[5:-1], b"x"])), "")
    # The answer to many wrong fields is short.
    answer = api.send("PUT", RATE, json={f"field{number}": 1 for number in range(5000)})
    assert (answer.status_code, len(answer.content) < 5000) == (400, True)


def test_an_integer_may_have_a_fraction_of_zero(api: Api) -> None:
    """As JSON Schema has it. A byte order mark before a body is ignored, as RFC 8259 says in section 8.1."""
    answer = api.send("POST", "/system/config/rollback", data=b'\xef\xbb\xbf{"revision": 1.0}')
    assert (answer.status_code, answer.json()["data"]["revision"]) == (200, 1)
    for value in (b"120.0", b"12e1", b'"120"'):
        body = b'{"path": "cgnat.vrf_table", "value": %s}' % value
        assert api.send("POST", "/system/config/set", data=body).status_code == 200
        candidate = api.send("GET", "/system/config/candidate").text
        assert '"vrf_table":120,' in candidate
    assert api.send("POST", "/system/config/discard").ok
    assert api.get("/subscribers", params={"limit": "2.0"})["count"] == 2
    assert api.send("GET", "/system/config/compare", params={"revision": "1.0"}).status_code == 200
    for value in (b"1.5", b"1e400", b"1e-400", b'"1.0"', b"0.1e"):
        answer = api.send("POST", "/system/config/commit", data=b'{"confirm_seconds": %s}' % value)
        assert_civil(answer)
        assert answer.status_code == 400, value


# Wrong queries


def test_an_unknown_query_parameter_is_400_but_at_an_open_path(api: Api) -> None:
    for route in ROUTES:
        if route.method == "GET" and route.access in (ANY_ROLE, ADMIN):
            assert_invalid(send(api, route, "admin", params={"typo": "pppoe"}), "typo")
    for path in ("/api/v1/health", "/api/v1/openapi.json", "/api/v1/docs", "/metrics", "/"):
        # As monitors do.
        assert api.session.get(f"{api.url}{path}?x=1&x=2&%ff", timeout=PATIENCE).status_code == 200


def test_a_bad_value_in_the_query_is_400(api: Api) -> None:
    wrong: list[tuple[str, Any]] = [
        *(("limit", {"limit": text}) for text in ("0", "10001", "", "1.5", "1e2", "\u0661", "1" * 400)),
        *(("cursor", {"limit": "2", "cursor": text}) for text in ("x", "bnVsbA", "\u00e9", "W" * 1024)),
        ("limit", {"cursor": "x"}),
        ("limit", [("limit", "1"), ("limit", "2")]),
        ("type", {"type": "ppp"}),
        ("sort", {"sort": "--id"}),
    ]
    for name, query in wrong:
        answer = api.send("GET", "/subscribers", params=query)
        assert_civil(answer)
        assert_invalid(answer, name)


# Wrong methods


def test_another_method_is_405_and_names_those_of_the_path(api: Api) -> None:
    for path in {route.path for route in ROUTES}:
        allowed = {route.method for route in ROUTES if route.path == path}
        for method in {"GET", "DELETE", "PATCH", "OPTIONS", "BREW"} - allowed:
            answer = api.send(method, path.replace("{id}", "1"), "admin")
            assert_civil(answer)
            assert answer.status_code == 405, (method, path)
            assert allowed <= set(answer.headers["Allow"].split(", "))


# What gunicorn refuses before Flask sees it


@pytest.mark.parametrize(
    "sent",
    [
        b"GARBAGE\r\n\r\n",
        b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 300 + b"\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nExpect: gold\r\nContent-Length: 2\r\n\r\n{}",
        b"GET /api/v1/qos HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer \xff\xfe\r\n\r\n",
        b"GET /api/v1/\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["nonsense", "long line", "many headers", "expectation", "bytes in a header", "bytes in a path"],
)
def test_a_broken_request_gets_json_or_a_closed_connection(api: Api, sent: bytes) -> None:
    context = ssl.create_default_context(cafile=api.environment["GATEWAY_CA"])
    address, answer = ("127.0.0.1", int(api.url.rpartition(":")[2])), b""
    with (
        socket.create_connection(address, timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as connection,
        suppress(ssl.SSLError, ConnectionResetError),
    ):
        connection.sendall(sent.replace(b"Host: x", b"Host: x\r\nConnection: close"))
        while data := connection.recv(65536):
            answer += data
    if not answer:
        return
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ")[1])
    assert 400 <= status <= 431 or status == 501
    assert b"X-Request-ID: " in head
    assert b"application/json" in head
    assert set(json.loads(body)) & {"status", "detail"}


# Request ids


def test_a_request_id_is_kept_unless_it_could_break_a_line(api: Api, state: Path) -> None:
    answer = api.send("GET", "/health", None, headers={"X-Request-ID": "req-42.a:b_c"})
    assert answer.headers["X-Request-ID"] == "req-42.a:b_c"
    for given in ("", "a b", "x" * 129, 'a"b', "é"):
        made = api.send("GET", "/health", None, headers={"X-Request-ID": given.encode()}).headers[
            "X-Request-ID"
        ]
        assert made != given
        assert made.isalnum()
    api.send("GET", "/x%0d%0arequest_id=forged%22%1b[31m", None, headers={"X-Request-ID": "forger"})
    log = state / "log"
    wait_for("the line in the log", lambda: "request_id=forger " in log.read_text())
    assert "\nrequest_id=forged" not in log.read_text()
    assert "\x1b" not in log.read_text()
