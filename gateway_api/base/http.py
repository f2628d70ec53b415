"""Headers of responses and fields of the access log, for the application and the worker."""

import logging
from collections.abc import Iterable
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from gateway_contract.base.logs import mask_text

#: Keys of the WSGI environ for the name and the role of the caller, after the access check.
USER_KEY, ROLE_KEY = "gateway_api.user", "gateway_api.role"

#: Paths that monitors poll, with or without a token. A successful poll is logged at debug.
_POLLED_PATHS = (
    "/api/v1/health",
    "/api/v1/system/health",
    "/api/v1/system/status",
    "/api/v1/system/version",
    "/metrics",
)
#: Header of the live page's polls. Any client can send this header, so some paths are always logged at info.
_POLL_HEADER = "HTTP_X_POLL"
_ALWAYS_LOGGED_PATHS = ("/api/v1/subscribers", "/api/v1/system/config", "/api/v1/audit")

#: The header with the id of a request, in the response too.
REQUEST_ID_HEADER = "X-Request-ID"

_YEAR_SECONDS = 365 * 86_400


def make_security_headers(*, tls: bool) -> dict[str, str]:
    """Return the headers that restrict browsers and caches. With `tls`, include the headers that are only
    valid over TLS. Some responses replace the header Cache-Control."""
    return {
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
        # RFC 6797 section 7.2: never over plain HTTP.
        **({"Strict-Transport-Security": f"max-age={_YEAR_SECONDS}"} if tls else {}),
    }


def find_request_id(headers: Iterable[tuple[str, str]]) -> str | None:
    """Return the request id from the headers of a response, or None if no header has the id."""
    return next((value for name, value in headers if name == REQUEST_ID_HEADER), None)


def make_log_fields(
    environ: dict[str, Any], *, request_id: str | None, status: int, size: int, seconds: float | None
) -> dict[str, Any]:
    """Return the fields of an access log line. The query of the request is left out, because the query may
    contain secrets."""
    path = environ.get("PATH_INFO")
    return {
        "request_id": request_id,
        "user": environ.get(USER_KEY),
        "role": environ.get(ROLE_KEY),
        "address": environ.get("REMOTE_ADDR"),
        "method": environ.get("REQUEST_METHOD"),
        "path": None if path is None else _mask_path(path),
        "status": status,
        "duration_seconds": seconds,
        "bytes": size,
    }


# Cached, because clients request the same paths again and again. The 256 longest paths take about 4 MiB.
@lru_cache(maxsize=256)
def _mask_path(path: str) -> str:
    # WSGI decodes the bytes of the request as Latin-1.
    return quote(mask_text(path), safe="/:@*", encoding="latin-1")


def choose_log_level(environ: dict[str, Any], status: int) -> int:
    """Return the level of an access log line. The level is debug for a successful poll, because polls are
    frequent."""
    is_read = environ.get("REQUEST_METHOD") in ("GET", "HEAD") and (status < 300 or status == 304)
    path = environ.get("PATH_INFO")
    is_poll = path in _POLLED_PATHS or (_POLL_HEADER in environ and path not in _ALWAYS_LOGGED_PATHS)
    return logging.DEBUG if is_read and is_poll else logging.INFO
