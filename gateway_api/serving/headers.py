"""What every answer has in its head, whoever writes it: a view, gunicorn or the worker."""

_YEAR = 365 * 86_400


def guards(*, tls: bool) -> dict[str, str]:
    """What keeps browsers and caches from doing too much with an answer. An answer that may be kept has a
    Cache-Control of its own, instead of this one."""
    return {
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
        # RFC 6797 section 7.2: never over plain HTTP.
        **({"Strict-Transport-Security": f"max-age={_YEAR}"} if tls else {}),
    }
