"""Which coding a client gets, and when a long body is sent plain."""

import gzip
import random
from collections.abc import Callable
from threading import Event

import gevent
import pytest
from flask import Flask, Response

from gateway_api.base.settings import TOKEN, USERS
from gateway_api.web import compression
from gateway_api.web.access import ADMIN
from gateway_api.web.app import list_routes
from gateway_api.web.compression import MAX_LOOP_BYTES, MIN_BYTES, Body, Compressor, negotiate_coding, zstd
from gateway_api.web.operation import Route
from gateway_api.web.responses import EVENT_STREAM

COMPRESSED = [
    route for profile in (USERS, TOKEN) for route in list_routes(profile) if route.operation.is_compressible
]


@pytest.mark.parametrize(
    ("coding", "accepted"),
    [
        *(("gzip", text) for text in ("GZIP", "x-gzip", "gzip;q=0.001", "br;q=1, gzip; q=0.5", "*")),
        *(("gzip", text) for text in ("identity;q=0.5, gzip;q=0.5", "gzip, identity;q=0")),
        *(("gzip", text) for text in ("gzip, zstd;q=0.9", "gzip, zstd;q=x", "zstd;q=0.5, *")),
        *(("zstd", text) for text in ("zstd", "gzip;q=0.5, zstd;q=0.5", "gzip, deflate, br, zstd")),
        *((None, text) for text in ("", "br", "gzip;q=0.000", "*;q=0", "gzip;q=0, *", "gzipped")),
        *((None, text) for text in ("gzip;q=0.5, identity", "gzip;q=0.2, *;q=0.5")),
        # A weight that is none counts as zero.
        *((None, f"gzip;q={weight}") for weight in ("x", "-1", "1.5", ".5", "nan")),
    ],
)
def test_a_client_gets_the_coding_that_it_prefers(coding: str | None, accepted: str) -> None:
    assert negotiate_coding(accepted) == coding


@pytest.mark.parametrize("length", [MIN_BYTES, MAX_LOOP_BYTES, MAX_LOOP_BYTES + 1])
@pytest.mark.parametrize(("coding", "decode"), [("gzip", gzip.decompress), ("zstd", zstd.decompress)])
def test_a_body_is_compressed_from_1024_bytes(
    coding: str, decode: Callable[[bytes], bytes], length: int
) -> None:
    body = Compressor().encode(Body(bytes(length)), coding)
    assert body.coding == coding
    assert decode(body.data) == bytes(length)
    if coding == "zstd":
        # For clients that need the size.
        assert zstd.get_frame_info(body.data).decompressed_size == length
    shorter = Body(bytes(MIN_BYTES - 1))
    assert Compressor().encode(shorter, coding) is shorter


def test_a_long_body_has_no_larger_window_than_http_allows() -> None:
    plain = random.Random(1).randbytes(32 << 20)
    limit = {zstd.DecompressionParameter.window_log_max: 23}
    body = Compressor().encode(Body(plain), "zstd")
    assert zstd.decompress(body.data, options=limit) == plain


def test_a_long_body_that_would_wait_for_another_is_sent_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    compressor, may_end, plain = Compressor(), Event(), Body(bytes(MAX_LOOP_BYTES + 1))

    def encode(plain: bytes) -> bytes:
        assert may_end.wait(60)
        return b"short"

    monkeypatch.setitem(compression._ENCODERS, "gzip", encode)
    first = gevent.spawn(compressor.encode, plain, "gzip")
    gevent.sleep(0)
    assert compressor.encode(plain, "gzip") is plain
    may_end.set()
    assert first.get() == Body(b"short", "gzip")
    assert compressor.encode(plain, "gzip") == Body(b"short", "gzip")


def test_a_long_body_does_not_wait_for_the_threads_of_logins() -> None:
    compressor, may_end = Compressor(), Event()
    pool = gevent.get_hub().threadpool
    logins = [pool.spawn(may_end.wait, 60) for _ in range(pool.maxsize)]
    try:
        with gevent.Timeout(30):
            assert compressor.encode(Body(bytes(MAX_LOOP_BYTES + 1)), "gzip").coding == "gzip"
    finally:
        may_end.set()
        gevent.joinall(logins)


def test_a_body_that_cannot_be_compressed_keeps_no_other_back(monkeypatch: pytest.MonkeyPatch) -> None:
    compressor, plain = Compressor(), Body(bytes(MAX_LOOP_BYTES + 1))

    def fail(plain: bytes) -> bytes:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setitem(compression._ENCODERS, "gzip", fail)
        with pytest.raises(MemoryError):
            compressor.encode(plain, "gzip")
    assert compressor.encode(plain, "gzip").coding == "gzip"


def _compressed(response: Response) -> Response:
    with Flask(__name__).test_request_context(headers={"Accept-Encoding": "gzip"}):
        return Compressor().compress(response)


@pytest.mark.parametrize(("length", "tag"), [(MIN_BYTES, 'W/"v"'), (MIN_BYTES - 1, '"v"')])
def test_a_strong_entity_tag_of_a_compressed_body_becomes_weak(length: int, tag: str) -> None:
    response = Response(bytes(length))
    response.set_etag("v")
    assert _compressed(response).headers["ETag"] == tag


def test_a_response_that_is_not_200_stays_plain() -> None:
    response = _compressed(Response(bytes(MIN_BYTES), 404))
    assert "Content-Encoding" not in response.headers
    assert response.headers["Vary"] == "Accept-Encoding"


@pytest.mark.parametrize("route", COMPRESSED, ids=lambda route: route.name)
def test_no_change_no_stream_and_no_data_of_an_admin_is_compressed(route: Route) -> None:
    assert route.method == "GET"
    assert route.operation.access is not ADMIN
    assert route.operation.media_type != EVENT_STREAM
    # Nor what may hold a secret.
    assert route.resource not in ("configuration", "webhooks", "audit", "auth", "login", "events")
