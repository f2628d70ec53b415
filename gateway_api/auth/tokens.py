"""Access tokens: JWT signed with HMAC-SHA-256 (RFC 7519, RFC 7515); and the token of the other profile."""

import hmac
import uuid
from collections.abc import Callable
from typing import Annotated

import jwt
import msgspec

from gateway_api.base.errors import NotAuthenticated

ISSUER = "gateway-api"
_ALGORITHM = "HS256"
#: Seconds: a clock that was stepped back must not void the tokens that were issued just before.
_LEEWAY = 30


#: Epoch seconds that every JSON reader can hold exactly (RFC 8259 section 6).
_Time = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]


class Claims(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a token says. `gen` is its user's generation as of the login, `ledger` the one that would know of
    its revocation, `iat`, `exp` and `nbf` are epoch seconds, `jti` names this very token. Ours have no `nbf`;
    a token that has one is invalid before it."""

    iss: str
    sub: str
    role: str
    gen: str
    ledger: str
    iat: _Time
    exp: _Time
    jti: str
    nbf: _Time = 0


class Tokens:
    """`secret` signs; `ledger` names the one in which revoked tokens stand; `clock` gives epoch seconds."""

    def __init__(self, secret: bytes, ledger: str, clock: Callable[[], float]) -> None:
        self._secret = secret
        self._ledger = ledger
        self._clock = clock

    def issue(self, username: str, role: str, generation: str, lifetime: int) -> str:
        """A new token for `lifetime` seconds."""
        now = int(self._clock())
        claims = Claims(
            ISSUER, username, role, generation, self._ledger, now, now + lifetime, uuid.uuid4().hex
        )
        return jwt.encode(msgspec.to_builtins(claims), self._secret, algorithm=_ALGORITHM)

    def read(self, token: str) -> Claims:
        """The claims of a token that holds now. Raises NotAuthenticated."""
        if "=" in token:
            # RFC 7515 section 2. PyJWT passes padding over; other spellings of the same bytes it refuses.
            raise NotAuthenticated("padding in a token")
        try:
            # Times are checked below: PyJWT would take a text for a number and knows only its own clock.
            payload = jwt.decode(
                token,
                self._secret,
                algorithms=[_ALGORITHM],
                issuer=ISSUER,
                options={"verify_exp": False, "verify_iat": False, "verify_nbf": False},
            )
            claims = msgspec.convert(payload, Claims)
        except (jwt.InvalidTokenError, msgspec.ValidationError, ValueError, RecursionError) as error:
            raise NotAuthenticated(str(error)) from error
        if claims.ledger != self._ledger:
            raise NotAuthenticated("a token of another ledger")
        now = self._clock()
        if claims.exp <= now or max(claims.iat, claims.nbf) > now + _LEEWAY:
            raise NotAuthenticated("a token out of its time")
        return claims


#: Who changes something with it, to the archive and the audit log. No user has such a name.
AUTHOR = "static token"


def is_token(presented: str, token: str) -> bool:
    """Takes as long whatever is right of it: a token can't be guessed letter by letter."""
    return hmac.compare_digest(presented.encode(), token.encode())
