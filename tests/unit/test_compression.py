"""Which coding a client gets, and when a long body is sent plain."""

import gzip
import random
from collections.abc import Callable
from threading import Event

import gevent
import pytest
from flask import Flask, Response

from gateway_api.web import compression
from gateway_api.web.app import ROUTES
from gateway_api.web.compression import AT_ONCE, LEAST, Body, Compressor, preferred, zstd
from gateway_api.web.operation import ADMIN, EVENT_STREAM, ApiOperation

ROWS = [row for routes in ROUTES.values() for resource in routes for row in resource.rows()]
COMPRESSED = [(name, row) for name, _, row in ROWS if row.compressed]


@pytest.mark.parametrize(
    "accepted",
    [
        "gzip",
        "GZIP",
        "x-gzip",
        "gzip;q=0.001",
        "br;q=1, gzip; q=0.5",
        "identity;q=0.5, gzip;q=0.5",
        "*",
        "gzip, identity;q=0",
    ],
)
def test_a_client_that_accepts_gzip_gets_it(accepted: str) -> None:
    assert preferred(accepted) == "gzip"


@pytest.mark.parametrize(
    "accepted", ["zstd", "gzip, zstd", "gzip;q=0.5, zstd;q=0.5", "gzip, deflate, br, zstd"]
)
def test_a_client_that_accepts_zstd_gets_it(accepted: str) -> None:
    assert preferred(accepted) == "zstd"


@pytest.mark.parametrize(
    "accepted", ["gzip, zstd;q=0.9", "gzip, zstd;q=0", "gzip, zstd;q=x", "zstd;q=0.5, *"]
)
def test_a_client_that_prefers_gzip_gets_it(accepted: str) -> None:
    assert preferred(accepted) == "gzip"


@pytest.mark.parametrize(
    "accepted", ["", "identity", "br", "gzip;q=0", "gzip;q=0.000", "*;q=0", "gzip;q=0, *", "gzipped"]
)
def test_a_client_that_does_not_accept_gzip_gets_the_plain_body(accepted: str) -> None:
    assert preferred(accepted) is None


@pytest.mark.parametrize("accepted", ["gzip;q=0.5, identity", "gzip;q=0.2, *;q=0.5"])
def test_a_client_that_prefers_the_plain_body_gets_it(accepted: str) -> None:
    assert preferred(accepted) is None


@pytest.mark.parametrize("weight", ["", "x", "-1", "1.5", "0.1234", ".5", "1e0", "nan"])
def test_a_malformed_weight_counts_as_zero(weight: str) -> None:
    assert preferred(f"gzip;q={weight}") is None


@pytest.mark.parametrize("length", [LEAST, AT_ONCE, AT_ONCE + 1])
@pytest.mark.parametrize(("coding", "decode"), [("gzip", gzip.decompress), ("zstd", zstd.decompress)])
def test_a_body_is_compressed_from_1024_bytes(
    coding: str, decode: Callable[[bytes], bytes], length: int
) -> None:
    body = Compressor().encode(Body(bytes(length)), coding)
    assert body.coding == coding
    assert decode(body.data) == bytes(length)


def test_a_long_body_has_no_larger_window_than_http_allows() -> None:
    plain = random.Random(1).randbytes(32 << 20)
    limit = {zstd.DecompressionParameter.window_log_max: 23}
    body = Compressor().encode(Body(plain), "zstd")
    assert zstd.decompress(body.data, options=limit) == plain


def test_a_body_in_zstd_has_its_size_for_clients_that_need_it() -> None:
    body = Compressor().encode(Body(bytes(AT_ONCE + 1)), "zstd")
    assert zstd.get_frame_info(body.data).decompressed_size == AT_ONCE + 1


def test_a_shorter_body_stays_plain() -> None:
    plain = Body(bytes(LEAST - 1))
    assert Compressor().encode(plain, "gzip") is plain


def test_a_long_body_leaves_the_event_loop_free(monkeypatch: pytest.MonkeyPatch) -> None:
    compressor, loop_ran = Compressor(), Event()

    def encode(plain: bytes) -> bytes:
        assert loop_ran.wait(60)
        return b"short"

    monkeypatch.setitem(compression._CODINGS, "gzip", encode)
    gevent.spawn(loop_ran.set)
    assert compressor.encode(Body(bytes(AT_ONCE + 1)), "gzip").data == b"short"


def test_a_long_body_that_would_wait_for_another_is_sent_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    compressor, may_end, plain = Compressor(), Event(), Body(bytes(AT_ONCE + 1))

    def encode(plain: bytes) -> bytes:
        assert may_end.wait(60)
        return b"short"

    monkeypatch.setitem(compression._CODINGS, "gzip", encode)
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
            assert compressor.encode(Body(bytes(AT_ONCE + 1)), "gzip").coding == "gzip"
    finally:
        may_end.set()
        gevent.joinall(logins)


def test_a_body_that_cannot_be_compressed_keeps_no_other_back(monkeypatch: pytest.MonkeyPatch) -> None:
    compressor, plain = Compressor(), Body(bytes(AT_ONCE + 1))

    def fail(plain: bytes) -> bytes:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setitem(compression._CODINGS, "gzip", fail)
        with pytest.raises(MemoryError):
            compressor.encode(plain, "gzip")
    assert compressor.encode(plain, "gzip").coding == "gzip"


def _compressed(response: Response) -> Response:
    with Flask(__name__).test_request_context(headers={"Accept-Encoding": "gzip"}):
        return Compressor().compress(response)


def test_a_strong_entity_tag_becomes_weak() -> None:
    response = Response(bytes(LEAST))
    response.set_etag("v")
    assert _compressed(response).headers["ETag"] == 'W/"v"'


def test_a_strong_entity_tag_of_a_plain_body_stays() -> None:
    response = Response(b"short")
    response.set_etag("v")
    assert _compressed(response).headers["ETag"] == '"v"'


def test_a_response_that_is_not_200_stays_plain() -> None:
    response = _compressed(Response(bytes(LEAST), 404))
    assert "Content-Encoding" not in response.headers
    assert response.headers["Vary"] == "Accept-Encoding"


@pytest.mark.parametrize(("name", "row"), COMPRESSED, ids=[name for name, _ in COMPRESSED])
def test_no_change_no_stream_and_no_data_of_an_admin_is_compressed(name: str, row: ApiOperation) -> None:
    assert row.method == "GET"
    assert row.access is not ADMIN
    assert row.media_type != EVENT_STREAM


@pytest.mark.parametrize("resource", ["configuration", "webhooks", "audit", "auth", "login", "events"])
def test_no_row_about_secrets_is_compressed(resource: str) -> None:
    assert resource not in {name.partition(".")[0] for name, _ in COMPRESSED}
