"""Compressed responses, as a client sees them."""

import ssl
import zlib
from http.client import HTTPSConnection
from urllib.parse import urlsplit

import pytest
import requests

from gateway_api.web.compression import zstd
from tests.support.stack import Api, wait_for

LIST = "/qos"


def _sent(api: Api, path: str, accepts: str, **more: str) -> tuple[requests.Response, bytes]:
    """The response, and its body as it came."""
    answer = api.send("GET", path, "operator", headers={"Accept-Encoding": accepts, **more}, stream=True)
    return answer, answer.raw.read(decode_content=False)


def test_a_list_is_compressed_for_a_client_that_accepts_it(api: Api) -> None:
    answer, body = _sent(api, LIST, "gzip")
    plain, expected = _sent(api, LIST, "identity")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert len(body) < len(expected)
    assert int(answer.headers["Content-Length"]) == len(body)
    assert zlib.decompress(body, 31) == expected


def test_a_list_is_compressed_with_zstd_for_a_client_that_names_it(api: Api) -> None:
    answer, body = _sent(api, LIST, "gzip, zstd")
    assert answer.headers["Content-Encoding"] == "zstd"
    assert zstd.decompress(body) == _sent(api, LIST, "identity")[1]


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
    [
        "/subscribers",
        "/subscribers?limit=100",
        "/subscribers/history",
        "/subscribers/traffic",
        "/interfaces/vlans",
        "/routing/routes",
        "/metrics",
    ],
)
def test_lists_pages_and_metrics_are_compressed(api: Api, path: str) -> None:
    # The history has the sessions soon after their start.
    wait_for("a long body", lambda: len(_sent(api, path, "identity")[1]) >= 1024)
    answer, body = _sent(api, path, "gzip")
    assert answer.headers["Content-Encoding"] == "gzip"
    assert len(zlib.decompress(body, 31)) >= 1024


def test_a_short_page_is_plain(api: Api) -> None:
    answer, body = _sent(api, f"{LIST}?limit=1", "gzip")
    assert len(body) < 1024
    assert "Content-Encoding" not in answer.headers


def test_clients_of_one_list_get_it_in_their_own_coding(api: Api) -> None:
    # More often than there are workers, each of which keeps the list.
    for coding in ("gzip", "zstd", "identity") * 4:
        assert _sent(api, "/subscribers", coding)[0].headers.get("Content-Encoding", "identity") == coding


@pytest.mark.parametrize(
    "path",
    [
        LIST,
        f"{LIST}?limit=1",
        "/interfaces/traffic",
        "/routing/bgp/summary",
        "/subscribers/1/timeline",
        "/subscribers/failed-sign-ons",
        "/subscribers/flapping",
    ],
)
@pytest.mark.parametrize("accepts", ["gzip", "identity"])
def test_a_cache_keeps_both_encodings_apart(api: Api, path: str, accepts: str) -> None:
    answer, _ = _sent(api, path, accepts)
    assert answer.headers["Vary"] == "Accept-Encoding"


@pytest.mark.parametrize("path", ["/system/config", "/webhooks", "/audit", "/system/config/archive"])
def test_what_may_hold_a_secret_is_plain(api: Api, path: str) -> None:
    answer = api.send("GET", path, "admin", headers={"Accept-Encoding": "gzip"})
    assert answer.ok
    assert "Content-Encoding" not in answer.headers


def test_one_session_is_plain(api: Api) -> None:
    id = api.get("/subscribers", params={"limit": 1})["sessions"][0]["id"]
    assert "Content-Encoding" not in _sent(api, f"/subscribers/{id}", "gzip")[0].headers


def test_the_event_stream_is_plain(api: Api) -> None:
    answer = api.send("GET", "/events/subscribers", headers={"Accept-Encoding": "gzip"}, stream=True)
    with answer:
        assert answer.ok
        assert "Content-Encoding" not in answer.headers


def test_a_client_with_the_compressed_list_gets_304(api: Api) -> None:
    answer, _ = _sent(api, "/subscribers", "gzip")
    assert answer.headers["Content-Encoding"] == "gzip"
    again, body = _sent(api, "/subscribers", "gzip", **{"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, body) == (304, b"")
