"""The response headers that browsers and caches obey, for views and for responses without a view."""

_YEAR = 365 * 86_400


def guards(*, tls: bool) -> dict[str, str]:
    """A response that may be cached has its own Cache-Control instead of this one."""
    return {
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
        # RFC 6797 section 7.2: never over plain HTTP.
        **({"Strict-Transport-Security": f"max-age={_YEAR}"} if tls else {}),
    }
