"""Pages for browsers: the live page; the reference page, which shows the OpenAPI document; the documentation
with gatewayctl.pyz, which `make docs` and the package build into the environment of the programs; and pages
with a single message.

The pages are the same for every client, and contain no data of the gateway.
"""

import gzip
import re
import sys
from base64 import b64encode
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path, PurePath
from typing import Any, cast

import msgspec
from flask import Blueprint, Flask, Response, current_app, render_template, request

from gateway_api.web import records
from gateway_api.web.access import OPEN, STATIC
from gateway_api.web.operation import operation
from gateway_api.web.responses import JSON
from gateway_contract.base.errors import NotFound

_EXTENSION_NAME = "openapi"
#: Cache-Control of a file that has its digest in the path (RFC 8246).
_CACHE_FOREVER = "public, max-age=31536000, immutable"
#: Cache-Control of any other file: the client checks each time whether the file has changed.
_REVALIDATE = "no-cache"
#: Media type of gatewayctl.pyz, which is compressed already.
_ARCHIVE_TYPE = "application/octet-stream"
#: Media types by suffix. No other files are served.
_MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".png": "image/png",
    ".pyz": _ARCHIVE_TYPE,
    ".sha256": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
}


def find_files(folder: Path) -> dict[str, Path]:
    """Return the files of known media types in a folder and its subfolders, by relative path. A link to a
    file outside the folder is left out: it must not publish other files of the machine."""
    return {
        file.relative_to(folder).as_posix(): file
        for file in sorted(folder.rglob("*"))
        if file.suffix in _MEDIA_TYPES and file.is_file() and is_inside(folder, file)
    }


def is_inside(folder: Path, file: Path) -> bool:
    """Return True if a file is inside the folder after links are followed."""
    return file.resolve().is_relative_to(folder.resolve())


@dataclass(frozen=True)
class Asset:
    """Static content with its media type. The content does not change while the API runs."""

    media_type: str
    body: bytes

    @classmethod
    def read(cls, file: Traversable) -> "Asset":
        return cls(_MEDIA_TYPES[PurePath(file.name).suffix], file.read_bytes())

    @classmethod
    def of_document(cls, document: dict[str, Any]) -> "Asset":
        """Return the OpenAPI document as an asset, with its compressed body and its digest already
        computed."""
        asset = cls(JSON, msgspec.json.encode(document))
        # Computed at the first use, and kept.
        _ = asset.compressed, asset.digest
        return asset

    @cached_property
    def digest(self) -> str:
        return sha256(self.body).hexdigest()[:16]

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.body, mtime=0)

    def serve(
        self, cache_control: str, headers: dict[str, str] | None = None, *, only_compressed: bool = False
    ) -> Response:
        """Return a response with the asset, compressed if the client accepts gzip. With `only_compressed`,
        the response is always compressed: all browsers accept gzip, and encrypting a megabyte costs as much
        as several requests."""
        is_compressed = only_compressed or (
            self.media_type != _ARCHIVE_TYPE and request.accept_encodings.quality("gzip") > 0
        )
        body = self.compressed if is_compressed else self.body
        response = Response(body, headers=headers, content_type=self.media_type)
        if is_compressed:
            response.headers["Content-Encoding"] = "gzip"
        # Weak: the same for both encodings (RFC 9110 section 8.8.1).
        response.set_etag(self.digest, weak=True)
        response.headers.update({"Cache-Control": cache_control, "Vary": "Accept-Encoding"})
        return response


_WEB_FOLDER = files("gateway_api") / "web"
_SWAGGER_UI_FOLDER = files("flask_swagger_ui") / "dist"
_NO_REFERRER = {"Referrer-Policy": "no-referrer"}

PAGE_FILES = {name: Asset.read(file) for name, file in find_files(Path(str(_WEB_FOLDER / "page"))).items()}
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    **_NO_REFERRER,
}

_REFERENCE_FILES = {
    **{name: Asset.read(_WEB_FOLDER / "docs" / name) for name in ("docs.css", "docs.js")},
    **{
        name: Asset.read(_SWAGGER_UI_FOLDER / name)
        for name in ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png")
    },
}
#: Common digest of all files of the page, so that a cache never mixes files of two versions.
_REFERENCE_DIGEST = sha256("".join(file.digest for file in _REFERENCE_FILES.values()).encode()).hexdigest()[
    :16
]
_REFERENCE_HTML = (_WEB_FOLDER / "docs" / "docs.html").read_text().replace("@DIGEST@", _REFERENCE_DIGEST)
_REFERENCE_PAGE = Asset(_MEDIA_TYPES[".html"], _REFERENCE_HTML.encode())
_REFERENCE_HEADERS = {
    # Swagger UI's icons are data.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    **_NO_REFERRER,
}

BUILT_FOLDER = Path(sys.prefix, "share/doc/gateway-api/html")
_DOCUMENTATION_FILES = find_files(BUILT_FOLDER)
_NOT_BUILT_MESSAGE = (
    "The documentation is not built. Run make docs in the folder of the source, then restart the API. "
    "Until then, read docs/index.md in that folder."
)
_INLINE_SCRIPT_PATTERN = re.compile(rb"<script>(.*?)</script>", re.DOTALL)

_MESSAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    **_NO_REFERRER,
}

docs = Blueprint("docs", __name__, url_prefix="/api/v1")
page = Blueprint("page", __name__)
documentation = Blueprint("documentation", __name__, url_prefix="/docs")


def install(app: Flask, document: Asset) -> None:
    """Store the OpenAPI document in the application."""
    app.extensions[_EXTENSION_NAME] = document


@docs.get("/openapi.json", endpoint="openapi")
@operation(OPEN, data=(records.OpenApi,), is_bare=True, extra_headers=("ETag",))
def show_document() -> Response:
    """Return this OpenAPI document."""
    return cast(Asset, current_app.extensions[_EXTENSION_NAME]).serve(_REVALIDATE)


@docs.get("/docs", endpoint="page")
@operation(OPEN, media_type="text/html", extra_headers=("ETag",))
def show_reference() -> Response:
    """Return the reference page, which shows this document, logs in, and sends requests."""
    return _REFERENCE_PAGE.serve(_REVALIDATE, _REFERENCE_HEADERS)


@docs.get("/docs/<digest>/<name>", endpoint="part")
@operation(OPEN)
def show_reference_file(digest: str, name: str) -> Response:
    """Return a file of the reference page."""
    if digest != _REFERENCE_DIGEST or name not in _REFERENCE_FILES:
        raise NotFound("No such file")
    return _REFERENCE_FILES[name].serve(_CACHE_FOREVER, only_compressed=True)


@page.get("/page/<name>", endpoint="part")
@page.get("/", endpoint="index")
@operation(STATIC)
def show_page_file(name: str = "index.html") -> Response:
    """Return the live page, or one of its modules, style sheets and pictures."""
    if name not in PAGE_FILES:
        raise NotFound("No such file")
    # The browser checks for a newer file at each request: after an upgrade, it never mixes modules of two
    # versions.
    return PAGE_FILES[name].serve(_REVALIDATE, _PAGE_HEADERS)


@documentation.get("/<path:name>", endpoint="part")
@documentation.get("/", endpoint="index")
@operation(STATIC)
def show_documentation_file(name: str | None = None) -> Response:
    """Return a page of the documentation, or another file of it. If the documentation is not built, say how
    to build it."""
    if not _DOCUMENTATION_FILES:
        if _is_browser():
            return _show_message(_NOT_BUILT_MESSAGE, 404)
        raise NotFound(_NOT_BUILT_MESSAGE)
    name = name or "index.html"
    if name not in _DOCUMENTATION_FILES:
        raise NotFound("No such file")
    asset, policy = _read_documentation(_DOCUMENTATION_FILES[name])
    return asset.serve(_REVALIDATE, {"Content-Security-Policy": policy, **_NO_REFERRER})


@cache
def _read_documentation(path: Path) -> tuple[Asset, str]:
    """Return a file of the documentation, with its Content-Security-Policy: the theme puts a short script
    into each page, and inline styles at pictures."""
    # Checked again: a file may have been replaced by a link since the start.
    if not is_inside(BUILT_FOLDER, path):
        raise NotFound("No such file")
    asset = Asset.read(path)
    digests = (
        b64encode(sha256(script).digest()).decode() for script in _INLINE_SCRIPT_PATTERN.findall(asset.body)
    )
    scripts = " ".join(["'self'", *(f"'sha256-{digest}'" for digest in dict.fromkeys(digests))])
    return asset, (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


def show_disabled(message: str) -> Response | None:
    """Return a page with status 503 if a browser requests the live page, because the modules of the live page
    are unavailable, too. Return None for a program, which gets JSON from every path."""
    if request.path != "/" or not _is_browser():
        return None
    return _show_message(message, 503)


def _is_browser() -> bool:
    """Return True if the client prefers HTML to JSON."""
    return request.accept_mimetypes.best_match(("application/json", "text/html")) == "text/html"


def _show_message(message: str, status: int) -> Response:
    """Return a page with one sentence and no script. The browser reloads the page every ten seconds."""
    html = render_template("message.html", message=message)
    return Response(html, status, _MESSAGE_HEADERS, content_type=_MEDIA_TYPES[".html"])
