"""Compression of responses (RFC 9110 section 8.4) for clients that accept it: zstd (RFC 8878, RFC 9659) or
gzip.

The length of a compressed response can reveal whether a text that the caller chose repeats a secret in the
response (BREACH, CVE-2013-3587). So a response with a secret is never compressed: each operation says whether
its responses may be compressed.
"""

import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial

import gevent
from flask import Response, request
from gevent.lock import BoundedSemaphore
from werkzeug.http import parse_accept_header

from gateway_contract.base.process import run_on_thread

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

#: Minimum size of a compressed body. Below this size, compression saves less than its headers take.
MIN_BYTES = 1024
#: Maximum size of a body that is compressed in the event loop. A larger body is compressed on a thread.
MAX_LOOP_BYTES = 64 << 10
#: Maximum time that a long body waits for the thread. Afterwards the body is sent uncompressed.
MAX_WAIT_SECONDS = 0.05

#: RFC 9110 section 8.4.1.3.
_CODING_ALIASES = {"x-gzip": "gzip"}
#: Encoder of each content coding, in the order of preference. zlib writes the format of gzip if 16 is added
#: to the bits of the window: 15 bits, for 32 KiB.
_ENCODERS: Mapping[str, Callable[[bytes], bytes]] = {
    "zstd": partial(zstd.compress, level=1),
    "gzip": partial(zlib.compress, level=3, wbits=16 + 15),
}


@dataclass(frozen=True, slots=True)
class Body:
    """Body of a response: the bytes and their content coding, which is None for an uncompressed body."""

    data: bytes
    coding: str | None = None

    def __len__(self) -> int:
        return len(self.data)


class Compressor:
    """Compressor for the responses of a worker. Must be created in the process that uses it."""

    def __init__(self) -> None:
        # Not the threads of gevent's hub: logins occupy these threads with bcrypt.
        self._thread = gevent.get_hub().threadpool_class(1)
        self._semaphore = BoundedSemaphore(1)

    def compress(self, response: Response) -> Response:
        """Compress the body of a response with status 200 if the body is long enough and the client accepts
        compression. Add the headers that describe the content coding. A response that already has the header
        Vary is left unchanged. Return the response."""
        if "Vary" in response.headers:
            # A whole list is compressed once for all of its clients.
            return response
        body = Body(response.get_data())
        if response.status_code == 200:
            body = self.encode(body, choose_coding())
        if body.coding is not None:
            response.set_data(body.data)
        return add_coding_headers(response, body.coding)

    def encode(self, plain: Body, coding: str | None) -> Body:
        """Return the body, compressed with the content coding `coding`. A body is returned unchanged if
        `coding` is None or the body is short. A long body is also returned unchanged if the compression
        thread stays busy for too long."""
        if coding is None or len(plain) < MIN_BYTES:
            return plain
        encode = _ENCODERS[coding]
        if len(plain) <= MAX_LOOP_BYTES:
            return Body(encode(plain.data), coding)
        if not self._semaphore.acquire(timeout=MAX_WAIT_SECONDS):
            return plain
        try:
            return Body(run_on_thread(self._thread, encode, plain.data), coding)
        finally:
            self._semaphore.release()


def choose_coding() -> str | None:
    """Return the content coding for the client of the current request, or None if the response must not be
    compressed."""
    return negotiate_coding(request.headers.get("Accept-Encoding", ""))


@lru_cache(64)
def negotiate_coding(accept_encoding: str) -> str | None:
    """Return the best content coding for an Accept-Encoding header (RFC 9110 section 12.5.3). Return None if
    the client accepts no coding or prefers an uncompressed response. A malformed weight counts as 0. Only a
    client that names zstd gets zstd: many clients that send `*` cannot decode zstd."""
    weights = {
        _CODING_ALIASES.get(name, name): weight
        for name, weight in parse_accept_header(accept_encoding.lower())
    }
    default_weight = weights.get("*", 0.0)
    weights.setdefault("gzip", default_weight)
    coding = max(_ENCODERS, key=lambda name: weights.get(name, 0.0))
    weight = weights.get(coding, 0.0)
    return coding if weight > 0 and weight >= weights.get("identity", default_weight) else None


def add_coding_headers(response: Response, coding: str | None) -> Response:
    """Add the header Vary to a response. If the body has a content coding, also add Content-Encoding and make
    a strong ETag weak. Return the response."""
    response.headers["Vary"] = "Accept-Encoding"
    if coding is not None:
        response.headers["Content-Encoding"] = coding
        etag, is_weak = response.get_etag()
        if etag is not None and not is_weak:
            # A strong ETag stands for identical bytes (RFC 9110 section 8.8.1).
            response.set_etag(etag, weak=True)
    return response
