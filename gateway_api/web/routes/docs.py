"""What this API is: as a document for programs, and as a page for people."""

from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import cast

import msgspec
from flask import Blueprint, Flask, Response, current_app

from gateway_api.base.errors import NotFound
from gateway_api.web import access, responses
from gateway_api.web.assets import ASK_AGAIN, FOR_EVER, Asset, serve
from gateway_api.web.openapi.document import document
from gateway_api.web.records import OpenApi
from gateway_api.web.responses import JSON

routes = Blueprint("docs", __name__, url_prefix="/api/v1")

_EXTENSION = "openapi"

_OURS = files("gateway_api") / "web" / "docs"
_SWAGGER_UI = files("flask_swagger_ui") / "dist"
_PARTS = {
    "docs.css": (_OURS, "text/css; charset=utf-8"),
    "docs.js": (_OURS, "text/javascript; charset=utf-8"),
    "swagger-ui.css": (_SWAGGER_UI, "text/css; charset=utf-8"),
    "swagger-ui-bundle.js": (_SWAGGER_UI, "text/javascript; charset=utf-8"),
    "favicon-32x32.png": (_SWAGGER_UI, "image/png"),
}

_HEADERS = {
    # Swagger UI's icons are data.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


def install(app: Flask) -> None:
    """Makes the document. To be called when all routes are registered."""
    app.extensions[_EXTENSION] = Asset(JSON, msgspec.json.encode(document(app)))


@routes.get("/openapi.json")
@access.open_to_all
@responses.ViewResponse((OpenApi,), bare=True, headers=("ETag",))
def openapi() -> Response:
    """This document."""
    return serve(cast(Asset, current_app.extensions[_EXTENSION]), ASK_AGAIN)


@routes.get("/docs")
@access.open_to_all
@responses.ViewResponse(media_type="text/html", headers=("ETag",))
def page() -> Response:
    """The page that shows this document, with a login, and tries what it describes."""
    return serve(_page(), ASK_AGAIN, _HEADERS)


@routes.get("/docs/<digest>/<name>")
@access.open_to_all
def part(digest: str, name: str) -> Response:
    """A file of that page."""
    if digest != _digest() or name not in _PARTS:
        raise NotFound("No such file")
    return serve(_part(name), FOR_EVER, for_browsers=True)


@cache
def _part(name: str) -> Asset:
    folder, media_type = _PARTS[name]
    return Asset(media_type, (folder / name).read_bytes())


@cache
def _digest() -> str:
    """Of all parts, so that none comes from a cache with others than its own."""
    return sha256("".join(_part(name).digest for name in _PARTS).encode()).hexdigest()[:16]


@cache
def _page() -> Asset:
    html = (_OURS / "docs.html").read_text().replace("@DIGEST@", _digest())
    return Asset("text/html; charset=utf-8", html.encode())
