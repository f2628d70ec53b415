"""What a browser shows in place of the live page while the API is disabled."""

import html

from flask import Response, request

_PAGE = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <meta http-equiv="refresh" content="10">
  <title>Subscriber gateway</title>
</head>
<body>
  <main>
    <h1>Subscriber gateway</h1>
    <p role="alert">{message}</p>
    <p>This page looks again every 10 seconds.</p>
  </main>
</body>
</html>
"""

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def is_wanted() -> bool:
    """Whether the request is a browser's for the live page. A program gets JSON from every path."""
    wanted = request.accept_mimetypes.best_match(("application/json", "text/html"))
    return request.path == "/" and wanted == "text/html"


def page(status: int, message: str) -> Response:
    """The message alone, without a script: the page's own modules are not served either."""
    text = _PAGE.format(message=html.escape(message))
    return Response(text, status, _HEADERS, content_type="text/html; charset=utf-8")
