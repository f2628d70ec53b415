"""The one token of the alternative profile."""

import hmac

#: Who changes something with it, to the archive and the audit log. No user has such a name.
AUTHOR = "static token"


def is_token(presented: str, token: str) -> bool:
    """Takes as long whatever is right of it: a token can't be guessed letter by letter."""
    return hmac.compare_digest(presented.encode(), token.encode())
