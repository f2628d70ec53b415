"""The documentation, which `make docs` and the package build into the environment of the programs.

It is the same for every client, and has no data of the gateway.
"""

import re
import sys
from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path

from flask import Response

from gateway_api.base.errors import NotFound
from gateway_api.web.assets import REVALIDATE, Asset, files_in, lies_in, serve
from gateway_api.web.operation import GET, STATIC, Routes

BUILT = Path(sys.prefix, "share/doc/gateway-api/html")
#: By the path of a request. What is not here is not served.
_FILES = files_in(BUILT)
_ABSENT = "The documentation is not installed: `make docs` builds it"
#: The foot of the live page, as HTML.
LINK = (
    '<a href="/docs/">Documentation</a>'
    if _FILES
    else "The documentation is not built: <code>make docs</code> builds it. Then restart the API."
)
_INLINE_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


def index() -> Response:
    """The first page of the documentation."""
    return file("index.html")


def file(name: str) -> Response:
    """A page of the documentation, or a file of its pages."""
    if name not in _FILES:
        raise NotFound("No such file" if _FILES else _ABSENT)
    asset, policy = _read(_FILES[name])
    headers = {"Content-Security-Policy": policy, "Referrer-Policy": "no-referrer"}
    return serve(asset, REVALIDATE, headers)


@cache
def _read(path: Path) -> tuple[Asset, str]:
    """A file with its Content-Security-Policy: the theme has a short script in each page, and styles at its
    pictures."""
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


routes = Routes(
    "documentation",
    "/docs",
    GET("/", index, STATIC),
    GET("/<path:name>", file, STATIC, name="part", any_query=True),
)
