"""Pages for browsers: the live page, the reference page, which shows the OpenAPI document, and the
documentation, which `make docs` and the package build into the environment of the programs.

They are the same for every client, and have no data of the gateway.
"""

import re
import sys
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import msgspec
from flask import Blueprint, Flask, Response, current_app

from gateway_api.web.access import OPEN, STATIC
from gateway_api.web.assets import FOR_EVER, REVALIDATE, TYPES, Asset, files_in, lies_in, message_page, serve
from gateway_api.web.operation import operation
from gateway_api.web.records import OpenApi
from gateway_api.web.responses import JSON
from gateway_contract.base.errors import NotFound

_EXTENSION = "openapi"

_WEB = files("gateway_api") / "web"
_SWAGGER_UI = files("flask_swagger_ui") / "dist"

BUILT = Path(sys.prefix, "share/doc/gateway-api/html")
#: By the path of a request. What is not here is not served.
_BUILT_FILES = files_in(BUILT)
_NOT_BUILT = (
    "The documentation is not built. Run make docs in the folder of the source, then restart the API."
)
_INLINE_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)

PAGE_FILES = {name: Asset.read(file) for name, file in files_in(Path(str(_WEB / "page"))).items()}
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}

_DOCS_FILES = {
    **{name: Asset.read(_WEB / "docs" / name) for name in ("docs.css", "docs.js")},
    **{
        name: Asset.read(_SWAGGER_UI / name)
        for name in ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png")
    },
}
#: Of all files, so that a cache never mixes files of two versions.
_DIGEST = sha256("".join(file.digest for file in _DOCS_FILES.values()).encode()).hexdigest()[:16]
_DOCS_HTML = (_WEB / "docs" / "docs.html").read_text().replace("@DIGEST@", _DIGEST)
_DOCS_PAGE = Asset(TYPES[".html"], _DOCS_HTML.encode())
_DOCS_HEADERS = {
    # Swagger UI's icons are data.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


docs = Blueprint("docs", __name__, url_prefix="/api/v1")
page = Blueprint("page", __name__)
documentation = Blueprint("documentation", __name__, url_prefix="/docs")


def encoded(document: dict[str, Any]) -> Asset:
    """The OpenAPI document, with what a response takes of it."""
    made = Asset(JSON, msgspec.json.encode(document))
    # Computed at the first use, and kept.
    _ = made.compressed, made.digest
    return made


def install(app: Flask, document: Asset) -> None:
    app.extensions[_EXTENSION] = document


@docs.get("/openapi.json")
@operation(OPEN, data=(OpenApi,), bare=True, more_headers=("ETag",))
def openapi() -> Response:
    """This document."""
    return serve(cast(Asset, current_app.extensions[_EXTENSION]), REVALIDATE)


@docs.get("/docs", endpoint="page")
@operation(OPEN, media_type="text/html", more_headers=("ETag",))
def docs_page() -> Response:
    """A page that shows this document, logs in, and sends requests."""
    return serve(_DOCS_PAGE, REVALIDATE, _DOCS_HEADERS)


@docs.get("/docs/<digest>/<name>", endpoint="part")
@operation(OPEN)
def docs_file(digest: str, name: str) -> Response:
    """A file of that page."""
    if digest != _DIGEST or name not in _DOCS_FILES:
        raise NotFound("No such file")
    return serve(_DOCS_FILES[name], FOR_EVER, for_browsers=True)


@page.get("/page/<name>", endpoint="part")
@page.get("/", endpoint="index")
@operation(STATIC)
def page_file(name: str = "index.html") -> Response:
    """The live page, or a module, style sheet or picture of it."""
    if name not in PAGE_FILES:
        raise NotFound("No such file")
    # With each request the browser checks for a newer file: after an upgrade no module meets an older one.
    return serve(PAGE_FILES[name], REVALIDATE, _PAGE_HEADERS)


@documentation.get("/<path:name>", endpoint="part")
@documentation.get("/", endpoint="index")
@operation(STATIC)
def documentation_file(name: str | None = None) -> Response:
    """A page of the documentation, or a file of its pages. The first page says how to build them."""
    if name is None and not _BUILT_FILES:
        return message_page(_NOT_BUILT, 200)
    name = name or "index.html"
    if name not in _BUILT_FILES:
        raise NotFound("No such file")
    asset, policy = _documentation(_BUILT_FILES[name])
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}
    return serve(asset, REVALIDATE, headers)


@cache
def _documentation(path: Path) -> tuple[Asset, str]:
    """A file of the documentation, with its Content-Security-Policy: the theme has a short script in each
    page, and styles at its pictures."""
    # Once more: what was a file at the start may be a link now.
    if not lies_in(BUILT, path):
        raise NotFound("No such file")
    asset = Asset.read(path)
    digests = (b64encode(sha256(script).digest()).decode() for script in _INLINE_SCRIPT.findall(asset.body))
    scripts = " ".join(["'self'", *(f"'sha256-{digest}'" for digest in dict.fromkeys(digests))])
    return asset, (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
