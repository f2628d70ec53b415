"""The live page and what it is made of: the same for everybody, and without any data of the gateway."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from flask import Blueprint, Response, request

from gateway_api.errors import NotFound
from gateway_api.web import access

routes = Blueprint("page", __name__)

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_HEADERS = {
    # Browsers ask each time whether they have the newest: after an upgrade no module meets an older one.
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class _File:
    content: bytes
    content_type: str
    etag: str


def _read(path: Path) -> _File:
    content = path.read_bytes()
    return _File(content, _TYPES[path.suffix], sha256(content).hexdigest()[:32])


_FILES = {path.name: _read(path) for path in (Path(__file__).parent.parent / "page").iterdir()}


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
    response = Response(file.content, content_type=file.content_type, headers=_HEADERS)
    response.set_etag(file.etag)
    response.make_conditional(request)
    return response
