"""The live page and what it is made of: the same for everybody, and without any data of the gateway."""

from pathlib import Path

from flask import Blueprint, Response

from gateway_api.base.errors import NotFound
from gateway_api.web import access
from gateway_api.web.assets import ASK_AGAIN, Asset, serve

routes = Blueprint("page", __name__)

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}

_FILES = {
    path.name: Asset(_TYPES[path.suffix], path.read_bytes())
    for path in (Path(__file__).parent.parent / "page").iterdir()
}


@routes.get("/")
@access.static
def index() -> Response:
    """The page."""
    return _served("index.html")


@routes.get("/page/<name>")
@access.static
def part(name: str) -> Response:
    """A module, style sheet or picture of the page."""
    return _served(name)


def _served(name: str) -> Response:
    file = _FILES.get(name)
    if file is None:
        raise NotFound("No such file")
    # Browsers ask each time whether they have the newest: after an upgrade no module meets an older one.
    return serve(file, ASK_AGAIN, _HEADERS)
