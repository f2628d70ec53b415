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
