"""What may be shown: of a configuration everything but the values of secret keys, of a text all but what
looks like a secret."""

import re
from typing import Any

MASK = "********"

_SECRET = ("secret", "password", "password_hash", "token", "key")

#: Hashes of bcrypt, secrets of Standard Webhooks, JSON Web Tokens, wherever they were put; and the query of a
#: URL, which is where many services want to be given one.
_KNOWN = re.compile(
    r"\$2[abxy]?\$\d\d\$[./A-Za-z0-9]{10,}|whsec_[\w+/=-]+|eyJ[\w-]+\.[\w-]+\.[\w-]*"
    r"|(?<=[\w/.:-]\?)[^\s?#\"]+=[^\s#\"]+",
    re.ASCII,
)


def is_secret(key: str) -> bool:
    """True when the key is, or ends in, a word for a secret: `radius_secret`, `auth-token`."""
    return key.lower().endswith(_SECRET)


def redacted(value: Any) -> Any:
    """A copy of a JSON value with `MASK` for every value under a secret key, unless it is null."""
    if isinstance(value, dict):
        return {
            key: MASK if is_secret(key) and held is not None else redacted(held)
            for key, held in value.items()
        }
    if isinstance(value, list):
        return [redacted(item) for item in value]
    return value


def masked_text(text: str) -> str:
    """Without what looks like a hash, a secret or a token."""
    return _KNOWN.sub(MASK, text)
