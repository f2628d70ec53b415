"""The one token of the alternative profile."""

import hmac


def is_token(presented: str, token: str) -> bool:
    """Takes as long whatever is right of it: a token can't be guessed letter by letter."""
    return hmac.compare_digest(presented.encode(), token.encode())
