"""HTTP itself, over TLS against the running stack: heads and framing, conditional requests, paths and
queries as bytes. Both of gunicorn's parsers are asked what they could disagree on."""

import json
import shutil
import socket
import ssl
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesHeaderParser
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from gateway_api.web.compression import zstd
from tests.support.stack import Api, running_api, wait_for

HEALTH = b"GET /api/v1/health HTTP/1.1\r\n"
LOGIN = b"POST /api/v1/auth/login HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"


@dataclass(frozen=True)
class Answered:
    status: int
    headers: Message
    body: Any


@dataclass(frozen=True)
class Server:
    """One that is sent bytes as they are."""

    port: int
    certificate: Path

    def send(self, sent: bytes) -> Answered:
        """All that it answers before it closes the connection, which is one JSON document."""
        head, _, body = b"".join(self.records(sent)).partition(b"\r\n\r\n")
        first, _, fields = head.partition(b"\r\n")
        return Answered(int(first.split()[1]), BytesHeaderParser().parsebytes(fields), json.loads(body))

    def records(self, sent: bytes) -> list[bytes]:
        """The same, by the record of TLS in which it came."""
        context = ssl.create_default_context(cafile=self.certificate)
        found = []
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            tls.sendall(sent)
            try:
                while data := tls.recv(65536):
                    found.append(data)
            except (ssl.SSLError, ConnectionResetError):
                # What it has not read makes the kernel reset the connection.
                pass
        return found


def server_at(url: str, certificate: Path) -> Server:
    return Server(int(url.rpartition(":")[2]), certificate)


@pytest.fixture(scope="module", params=["the fastest", "python"])
def server(
    request: pytest.FixtureRequest, api: Api, state: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """With the parser in C, where that is installed; and with the one in Python."""
    if request.param == "the fastest":
        yield server_at(api.url, state / "certificate.pem")
        return
    folder = tmp_path_factory.mktemp("python")
    for name in ("certificate.pem", "key.pem", "secret"):
        shutil.copy(state / name, folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("GUNICORN_CMD_ARGS", "--http-parser python")
        with running_api(state / "core.sock", folder, workers=1) as url:
            yield server_at(url, folder / "certificate.pem")


def assert_refused(answer: Answered, status: int) -> None:
    """In JSON, with what every answer has, by a server that does not name itself."""
    assert (answer.status, answer.body["status"]) == (status, "error")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.headers["X-Request-ID"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"
    assert "Server" not in answer.headers


# Lines of a header that continue another one (RFC 9112 section 5.2)


@pytest.mark.parametrize("space", [b" ", b"\t", b"  \t "])
def test_a_folded_header_line_is_400(server: Server, space: bytes) -> None:
    for folded in (
        b"Host: x\r\nX-Note: one\r\n%btwo\r\n" % space,
        b"X-Note: one\r\n%btwo\r\nHost: x\r\n" % space,
        b"X-Note: one\r\n%bHost: y\r\nHost: x\r\n" % space,
        b"Host: x\r\nAuthorization: Bearer\r\n%bx\r\n" % space,
        b"Host: x\r\nX-Note:\r\n%bone\r\n" % space,
    ):
        assert_refused(server.send(HEALTH + b"Connection: close\r\n" + folded + b"\r\n"), 400)


# Redirects (RFC 9110 section 10.2.2)


@pytest.mark.parametrize("host", [b"elsewhere.example", b"localhost", b"x:99"])
def test_a_redirect_stays_at_the_address_that_the_client_used(server: Server, host: bytes) -> None:
    for path, there in ((b"/docs", "/docs/"), (b"/docs?a=1&b=%2F", "/docs/?a=1&b=%2F")):
        answer = server.send(b"GET %b HTTP/1.1\r\nConnection: close\r\nHost: %b\r\n\r\n" % (path, host))
        assert (answer.status, answer.headers["Location"]) == (308, there)
        assert host.decode() not in json.dumps(answer.body)


# Host (RFC 9112 section 3.2, RFC 3986 section 3.2.2)

WRONG_HOSTS = {
    "none": b"",
    "empty": b"Host:\r\n",
    "blank": b"Host:  \r\n",
    "two lines": b"Host: x\r\nHost: x\r\n",
    "two names": b"Host: x, y\r\n",
    "a space within": b"Host: x y\r\n",
    "a path": b"Host: x/y\r\n",
    "a user": b"Host: u@x\r\n",
    "a query": b"Host: x?y\r\n",
    "a fragment": b"Host: x#y\r\n",
    "a scheme": b"Host: https://x\r\n",
    "no name": b"Host: :8443\r\n",
    "no port's text": b"Host: x:port\r\n",
    "a port out of range": b"Host: x:65536\r\n",
    "two ports": b"Host: x:1:2\r\n",
    "IPv6 without brackets": b"Host: ::1\r\n",
    "half a bracket": b"Host: [::1\r\n",
    "no address in brackets": b"Host: [x]\r\n",
    "a zone": b"Host: [fe80::1%25eth0]\r\n",
    "half a percent": b"Host: x%2\r\n",
    "bytes": b"Host: \xff\xfe\r\n",
    "quotes": b'Host: "x"\r\n',
    "angle brackets": b"Host: <x>\r\n",
}
HOSTS = [
    *("x", "localhost:8443", "localhost:", "bng1.example.", "a_b-c.example", "127.0.0.1:8443", "[::1]"),
    *("[::1]:8443", "[::ffff:127.0.0.1]", "%78", "xn--bcher-kva.example"),
]


def test_a_request_without_one_right_host_is_400(server: Server) -> None:
    for host in WRONG_HOSTS.values():
        assert_refused(server.send(HEALTH + b"Connection: close\r\n" + host + b"\r\n"), 400)


def test_a_host_may_be_whatever_a_uri_has_there(server: Server) -> None:
    for host in HOSTS:
        answer = server.send(HEALTH + b"Connection: close\r\nHost: %s\r\n\r\n" % host.encode())
        assert answer.status == 200


def test_http_1_0_needs_no_host_but_none_that_is_wrong(server: Server) -> None:
    old = HEALTH.replace(b"1.1", b"1.0")
    assert server.send(old + b"\r\n").status == 200
    assert_refused(server.send(old + b"Host: a b\r\n\r\n"), 400)


def test_a_short_response_comes_in_one_record(server: Server) -> None:
    (record,) = server.records(HEALTH + b"Connection: close\r\nHost: x\r\n\r\n")
    assert record.startswith(b"HTTP/1.1 200 ")
    assert record.endswith(b"}")


# Framing (RFC 9112 section 6.1)


@pytest.mark.parametrize(
    "codings", ["gzip, chunked", "GZIP , chunked", "deflate,chunked", "br", "br, chunked"]
)
def test_a_transfer_coding_that_nobody_here_decodes_is_501(server: Server, codings: str) -> None:
    sent = LOGIN + b"Transfer-Encoding: %s\r\n\r\n0\r\n\r\n" % codings.encode()
    assert_refused(server.send(sent), 501)


def test_transfer_codings_in_two_lines_are_as_in_one(server: Server) -> None:
    sent = LOGIN + b"Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert_refused(server.send(sent), 501)


@pytest.mark.parametrize("codings", ["identity", "chunked, chunked", "chunked, gzip"])
def test_a_body_without_an_end_is_400(server: Server, codings: str) -> None:
    sent = LOGIN + b"Transfer-Encoding: %s\r\n\r\n0\r\n\r\n" % codings.encode()
    assert_refused(server.send(sent), 400)


def test_chunks_alone_are_read(server: Server) -> None:
    sent = LOGIN + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    answer = server.send(sent)
    assert (answer.status, {problem["path"] for problem in answer.body["errors"]}) == (
        400,
        {"username", "password"},
    )


# Paths and queries as bytes


@pytest.mark.parametrize(
    "path", ["//api/v1/health", "///api/v1/health", "/%2Fapi/v1/health", "//", "//page/main.js"]
)
def test_a_path_with_more_slashes_is_another_path(server: Server, path: str) -> None:
    sent = b"GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n" % path.encode()
    assert_refused(server.send(sent), 404)


@pytest.mark.parametrize("value", ["%ff", "%C3", "%c0%af", "%ed%a0%80", "cr%e8me"])
def test_a_query_that_is_not_utf_8_is_400_and_names_the_parameter(api: Api, value: str) -> None:
    answer = api.send("GET", f"/subscribers?type=pppoe&username={value}")
    assert answer.status_code == 400
    problem = {"path": "username", "code": "invalid", "message": "must be percent-encoded UTF-8"}
    assert answer.json()["errors"] == [problem]


@pytest.mark.parametrize("query", ["a%ffb=1", "a%ffb=", "a%ffb"])
def test_a_query_whose_name_is_not_utf_8_is_400(api: Api, query: str) -> None:
    answer = api.send("GET", f"/subscribers?{query}")
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["path"] == ""


def test_a_query_in_utf_8_is_read(api: Api) -> None:
    assert api.get("/subscribers?username=cr%C3%A8me%20%F0%9F%98%80")["count"] == 0


# Conditional requests (RFC 9110 section 13.1)

WITH_ETAG = [
    "/system/config",
    "/system/config/candidate",
    "/openapi.json",
    "/docs",
    "/subscribers",
    "/subscribers?type=dhcp&sort=-username",
]


def unless(api: Api, path: str, named: str, method: str = "GET") -> requests.Response:
    return api.send(method, path, headers={"If-None-Match": named})


@pytest.mark.parametrize("path", WITH_ETAG)
def test_who_names_the_etag_that_is_there_is_sent_it_alone(api: Api, path: str) -> None:
    first = api.send("GET", path)
    again = unless(api, path, first.headers["ETag"])
    assert (again.status_code, again.content) == (304, b"")
    for name in ("ETag", "Cache-Control", "X-Content-Type-Options", "Vary"):
        assert again.headers.get(name) == first.headers.get(name)
    assert "Content-Type" not in again.headers
    assert again.headers["X-Request-ID"]


@pytest.mark.parametrize("path", ["/openapi.json", "/docs"])
def test_an_etag_of_both_encodings_is_weak(api: Api, path: str) -> None:
    plain, zipped = (
        api.send("GET", path, headers={"Accept-Encoding": name}) for name in ("identity", "gzip")
    )
    assert plain.headers["ETag"] == zipped.headers["ETag"]
    assert plain.headers["ETag"].startswith('W/"')


@pytest.mark.parametrize("shape", ["W/{}", '"other", {}', '"a,b" , , W/{} ,"c"', "*", ", {} ,"])
def test_it_may_be_named_weakly_among_others_or_as_any(api: Api, shape: str) -> None:
    etag = api.send("GET", "/system/config").headers["ETag"]
    assert unless(api, "/system/config", shape.format(etag)).status_code == 304


@pytest.mark.parametrize("named", ['"other"', "other", "", '""', '"other', "W/*", '"*"'])
def test_another_etag_or_what_is_none_names_nothing(api: Api, named: str) -> None:
    assert unless(api, "/system/config", named).status_code == 200


def test_a_difference_is_sent_whole_as_its_deadline_may_be_another(api: Api) -> None:
    path = "/system/config/compare"
    set_up = {"path": "system.hostname", "value": "bng-for-a-while"}
    assert api.send("POST", "/system/config/set", json=set_up).ok
    assert api.send("POST", "/system/config/commit", json={"confirm_seconds": 600}).ok
    waiting = api.send("GET", path)
    assert waiting.json()["data"]["confirm_deadline"]
    assert api.send("POST", "/system/config/confirm").ok
    confirmed = unless(api, path, waiting.headers["ETag"])
    assert confirmed.headers["ETag"] == waiting.headers["ETag"]
    assert (confirmed.status_code, confirmed.json()["data"]["confirm_deadline"]) == (200, None)


def test_a_head_is_conditional_too(api: Api) -> None:
    etag = api.send("GET", "/system/config").headers["ETag"]
    assert unless(api, "/system/config", etag, "HEAD").status_code == 304
    assert unless(api, "/system/config", '"other"', "HEAD").status_code == 200


def test_a_change_is_not_conditional_on_what_is_not_there(api: Api) -> None:
    # RFC 9110 section 13.1.2 asks 412 for that; no client has ever meant it here.
    etag = api.send("GET", "/system/config").headers["ETag"]
    assert unless(api, "/system/config/discard", etag, "POST").status_code == 200


def test_without_a_token_a_known_etag_is_401(api: Api) -> None:
    etag = api.send("GET", "/system/config").headers["ETag"]
    answer = api.send("GET", "/system/config", None, headers={"If-None-Match": etag})
    assert answer.status_code == 401


def test_an_if_match_that_is_no_entity_tag_is_400_and_changes_nothing(api: Api) -> None:
    for named in (
        "abc",
        "",
        ",",
        '"',
        "W/",
        '"a" "b"',
        '"a',
        "W/abc",
        '"a", b',
        "*, *",
        "é",
        '"' + "x" * 6_000,
    ):
        before = api.get("/system/config/compare", "admin")
        body = {"path": "system.hostname", "value": "bng9"}
        headers = {"If-Match": named.encode("latin-1")}
        answer = api.send("POST", "/system/config/set", json=body, headers=headers)
        assert answer.status_code == 400
        (problem,) = answer.json()["errors"]
        assert problem["path"] == "If-Match"
        assert api.get("/system/config/compare", "admin") == before


@pytest.mark.parametrize("named", ['"other"', 'W/"other"', '"a", "b,c"'])
def test_an_if_match_of_another_etag_is_412(api: Api, named: str) -> None:
    answer = api.send("POST", "/system/config/discard", headers={"If-Match": named})
    assert answer.status_code == 412


# What is the same in each process

UNKNOWN = [f"field_{number}" for number in (5, 3, 9, 1, 7, 2, 8, 4, 6, 0)]


@pytest.fixture(scope="module", params=["1", "2", "3"])
def seeded(
    request: pytest.FixtureRequest, state: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of one whose sets have another order than those of the others."""
    folder = tmp_path_factory.mktemp("seeded")
    for name in ("certificate.pem", "key.pem", "secret", "logins.sqlite"):
        shutil.copy(state / name, folder)
    with running_api(state / "core.sock", folder, workers=1, PYTHONHASHSEED=request.param) as url:
        yield url


def test_the_errors_of_a_request_have_its_order(seeded: str, api: Api) -> None:
    answer = api.session.post(
        f"{seeded}/api/v1/auth/login", json={**dict.fromkeys(UNKNOWN), "password": 1}, timeout=30
    )
    paths = [*UNKNOWN, "password", "username"]
    assert answer.status_code == 400
    assert [problem["path"] for problem in answer.json()["errors"]] == paths
    assert [part.partition(":")[0] for part in answer.json()["message"].split("; ")] == paths


def test_the_errors_of_a_query_have_its_order(seeded: str, api: Api) -> None:
    asked = "&".join(f"{name}=1" for name in UNKNOWN)
    answer = api.session.get(
        f"{seeded}/api/v1/subscribers?{asked}",
        headers={"Authorization": f"Bearer {api.token('admin')}"},
        timeout=30,
    )
    assert answer.status_code == 400
    assert [problem["path"] for problem in answer.json()["errors"]] == UNKNOWN


def test_the_errors_of_the_parts_of_a_request_have_its_order(seeded: str, api: Api) -> None:
    edits = [{"op": "set", **dict.fromkeys(UNKNOWN[:4])}, {**dict.fromkeys(UNKNOWN[4:8]), "op": 1}]
    answer = api.session.post(
        f"{seeded}/api/v1/system/config/edit",
        json={"nothing": 1, "operations": edits},
        headers={"Authorization": f"Bearer {api.token('admin')}"},
        timeout=30,
    )
    assert answer.status_code == 400
    paths = [problem["path"] for problem in answer.json()["errors"]]
    given = [path for path in paths if path.rpartition(".")[2] in {*UNKNOWN, "nothing"}]
    assert given == [
        "nothing",
        *(f"operations.0.{name}" for name in UNKNOWN[:4]),
        *(f"operations.1.{name}" for name in UNKNOWN[4:8]),
    ]


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/api/v1/subscribers/1", "GET, HEAD, DELETE"),
        ("/api/v1/webhooks", "GET, HEAD, POST"),
        ("/api/v1/subscribers/jobs/1", "GET, HEAD, DELETE"),
        ("/api/v1/health", "GET, HEAD"),
        ("/api/v1/auth/login", "POST"),
        ("/docs/", "GET, HEAD"),
    ],
)
def test_the_methods_of_a_path_have_the_order_of_the_table(
    seeded: str, api: Api, path: str, methods: str
) -> None:
    answer = api.session.request("PATCH", f"{seeded}{path}", timeout=30)
    assert (answer.status_code, answer.headers["Allow"]) == (405, methods)


LIST = "/qos"


def _sent(api: Api, path: str, accepts: str, **more: str) -> tuple[requests.Response, bytes]:
    """The response, and its body as it came."""
    answer = api.send("GET", path, "operator", headers={"Accept-Encoding": accepts, **more}, stream=True)
    return answer, answer.raw.read(decode_content=False)


def test_a_list_is_compressed_for_a_client_that_accepts_it(api: Api) -> None:
    plain, expected = _sent(api, LIST, "identity")
    assert "Content-Encoding" not in plain.headers
    answer, body = _sent(api, LIST, "gzip")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert len(body) < len(expected)
    assert int(answer.headers["Content-Length"]) == len(body)
    assert zlib.decompress(body, 31) == expected
    answer, body = _sent(api, LIST, "gzip, zstd")
    assert answer.headers["Content-Encoding"] == "zstd"
    assert zstd.decompress(body) == expected


def test_a_client_that_sends_no_accept_encoding_gets_the_plain_list(api: Api) -> None:
    url = urlsplit(api.url)
    context = ssl.create_default_context(cafile=api.environment["GATEWAY_CA"])
    connection = HTTPSConnection(str(url.hostname), url.port, context=context)
    connection.putrequest("GET", f"/api/v1{LIST}", skip_accept_encoding=True)
    connection.putheader("Authorization", f"Bearer {api.token('operator')}")
    connection.endheaders()
    assert connection.getresponse().read().startswith(b'{"status":"ok"')
    connection.close()


@pytest.mark.parametrize(
    "path",
    ["/subscribers?limit=100", "/subscribers/history", "/subscribers/traffic", "/metrics"],
)
def test_lists_pages_and_metrics_are_compressed(api: Api, path: str) -> None:
    # The history has the sessions soon after their start.
    wait_for("a long body", lambda: len(_sent(api, path, "identity")[1]) >= 1024)
    answer, body = _sent(api, path, "gzip")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert len(zlib.decompress(body, 31)) >= 1024


def test_clients_of_one_list_get_it_in_their_own_coding(api: Api) -> None:
    # More often than there are workers, each of which keeps the list.
    for coding in ("gzip", "zstd", "identity") * 4:
        assert _sent(api, "/subscribers", coding)[0].headers.get("Content-Encoding", "identity") == coding


@pytest.mark.parametrize("path", [LIST, f"{LIST}?limit=1", "/routing/bgp/summary"])
def test_a_cache_keeps_both_encodings_apart(api: Api, path: str) -> None:
    for accepts in ("gzip", "identity"):
        assert _sent(api, path, accepts)[0].headers["Vary"] == "Accept-Encoding"


def test_a_client_with_the_compressed_list_gets_304(api: Api) -> None:
    answer, _ = _sent(api, "/subscribers", "gzip")
    again, body = _sent(api, "/subscribers", "gzip", **{"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, body) == (304, b"")


def test_a_secret_a_session_and_the_event_stream_are_plain(api: Api) -> None:
    for path in ("/system/config", "/subscribers/12", "/events/subscribers"):
        with api.send("GET", path, headers={"Accept-Encoding": "gzip"}, stream=True) as answer:
            assert answer.ok
            assert "Content-Encoding" not in answer.headers
