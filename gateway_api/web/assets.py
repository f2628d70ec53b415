"""What stays as it is while the API runs: told apart by a digest, compressed when it is first asked for."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cached_property

from flask import Response, request

#: For what has its digest in its path (RFC 8246).
FOR_EVER = "public, max-age=31536000, immutable"
#: For what has to be asked for again, at least whether it has changed.
ASK_AGAIN = "no-cache"


@dataclass(frozen=True)
class Asset:
    media_type: str
    body: bytes

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.body).hexdigest()[:16]

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.body, mtime=0)


def serve(
    asset: Asset, cache_control: str, headers: dict[str, str] | None = None, *, for_browsers: bool = False
) -> Response:
    """As the client can take it. `for_browsers`: compressed in any case, as all of
    them take it; to encrypt a megabyte costs as much as several requests."""
    zipped = for_browsers or request.accept_encodings.quality("gzip") > 0
    response = Response(asset.compressed if zipped else asset.body, content_type=asset.media_type)
    if zipped:
        response.headers["Content-Encoding"] = "gzip"
    # Weak: the same for both encodings (RFC 9110 section 8.8.1).
    response.set_etag(asset.digest, weak=True)
    response.headers.update({"Cache-Control": cache_control, "Vary": "Accept-Encoding", **(headers or {})})
    return response
