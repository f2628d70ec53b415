"""gunicorn's response without the name of the server. gunicorn has no setting for that."""

from gunicorn.http import wsgi


class _Response(wsgi.Response):  # type: ignore[misc]
    def default_headers(self) -> list[str]:
        return [line for line in super().default_headers() if not line.startswith("Server:")]


def install() -> None:
    """Has gunicorn respond with it."""
    wsgi.Response = _Response
