"""Files that stay the same while the API runs, and short pages for browsers, without a script."""

import gzip
import hashlib
import html
from dataclasses import dataclass
from functools import cached_property
from importlib.resources.abc import Traversable
from pathlib import Path, PurePath

from flask import Response, request

#: For a file with its digest in the path (RFC 8246).
FOR_EVER = "public, max-age=31536000, immutable"
#: The client checks each time whether the file has changed.
REVALIDATE = "no-cache"
#: Media types by the ends of files' names.
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}


def files_in(folder: Path) -> dict[str, Path]:
    """Files of known types in the folder and below it, by their paths in it. Without those that lie outside
    when links are followed: a link must not publish a file of the machine."""
    return {
        file.relative_to(folder).as_posix(): file
        for file in sorted(folder.rglob("*"))
        if file.suffix in TYPES and file.is_file() and lies_in(folder, file)
    }


def lies_in(folder: Path, file: Path) -> bool:
    """Return whether it does when links are followed."""
    return file.resolve().is_relative_to(folder.resolve())


@dataclass(frozen=True)
class Asset:
    media_type: str
    body: bytes

    @classmethod
    def read(cls, file: Traversable) -> "Asset":
        return cls(TYPES[PurePath(file.name).suffix], file.read_bytes())

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.body).hexdigest()[:16]

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.body, mtime=0)


def serve(
    asset: Asset, cache_control: str, headers: dict[str, str] | None = None, *, for_browsers: bool = False
) -> Response:
    """Compressed if the client accepts it. `for_browsers`: always, since all of them accept it, and
    encrypting a megabyte costs as much as several requests."""
    zipped = for_browsers or request.accept_encodings.quality("gzip") > 0
    response = Response(asset.compressed if zipped else asset.body, content_type=asset.media_type)
    if zipped:
        response.headers["Content-Encoding"] = "gzip"
    # Weak: the same for both encodings (RFC 9110 section 8.8.1).
    response.set_etag(asset.digest, weak=True)
    response.headers.update({"Cache-Control": cache_control, "Vary": "Accept-Encoding", **(headers or {})})
    return response


_PAGE = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <meta http-equiv="refresh" content="{seconds}">
  <title>Subscriber gateway</title>
</head>
<body>
  <main>
    <h1>Subscriber gateway</h1>
    <p role="alert">{message}</p>
    <p>This page loads again every {seconds} seconds.</p>
  </main>
</body>
</html>
"""

_RELOAD_SECONDS = 10
_PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}


def message_page(message: str, status: int) -> Response:
    """Return a page with one sentence, which the browser loads again every ten seconds."""
    text = _PAGE.format(message=html.escape(message), seconds=_RELOAD_SECONDS)
    return Response(text, status, _PAGE_HEADERS, content_type=TYPES[".html"])


def disabled_page(message: str) -> Response | None:
    """503 for a browser that requests the live page, without a script: the page's modules are not served
    either. None for a program, which gets JSON from every path."""
    accepted = request.accept_mimetypes.best_match(("application/json", "text/html"))
    if request.path != "/" or accepted != "text/html":
        return None
    return message_page(message, 503)
