"""Access tokens, authorization, and the access settings. Access tokens are JWTs signed with HMAC-SHA-256 (RFC
7519, RFC 7515). The alternative profile has a static token instead of JWTs."""

import hmac
import logging
import uuid
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import jwt
import msgspec

from gateway_api.auth.ledger import Revocations
from gateway_contract.base.errors import GatewayApiError, LedgerUnavailable, NotAuthenticated
from gateway_contract.core.configuration import AccessReply, ApiSettings
from gateway_contract.core_client import CoreClient

ISSUER = "gateway-api"
_ALGORITHM = "HS256"
#: Seconds: new tokens stay valid when the clock is stepped back.
_LEEWAY_SECONDS = 30
_MAX_CACHED_TOKENS = 4096
#: The author of changes with the static token, in the archive and the audit log. No user has such a name.
STATIC_AUTHOR = "static token"

_log = logging.getLogger(__name__)

#: Epoch seconds that every JSON reader can hold exactly (RFC 8259 section 6).
_EpochSeconds = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]


class Claims(msgspec.Struct, frozen=True, omit_defaults=True):
    """The claims of a token. `gen` is the generation of the user at the login, `ledger` is the name of the
    ledger that would contain a revocation of the token, and `jti` is the id of the token. The API issues
    tokens without `nbf`, but respects `nbf` when it reads a token."""

    iss: str
    sub: str
    role: str
    gen: str
    ledger: str
    iat: _EpochSeconds
    exp: _EpochSeconds
    jti: str
    nbf: _EpochSeconds = 0


class Tokens:
    """Issuer and verifier of tokens. `secret` is the signing key, `ledger` returns the name of the ledger in
    use, and `clock` returns epoch seconds."""

    def __init__(self, secret: bytes, ledger: Callable[[], str], clock: Callable[[], float]) -> None:
        self._secret = secret
        self._ledger = ledger
        self._clock = clock
        # The check of the signature takes half of the time of a read, and its result never changes.
        self._verify_cached = lru_cache(_MAX_CACHED_TOKENS)(self._verify)

    def issue(self, username: str, role: str, generation: str, lifetime: int) -> str:
        """Issue a token for a user. The token contains the user's role and generation, and expires after
        `lifetime` seconds."""
        now = int(self._clock())
        claims = Claims(
            ISSUER, username, role, generation, self._ledger(), now, now + lifetime, uuid.uuid4().hex
        )
        return jwt.encode(msgspec.to_builtins(claims), self._secret, algorithm=_ALGORITHM)

    def read(self, token: str) -> Claims:
        """Verify a token and return its claims. Raises NotAuthenticated if the signature or a claim is
        invalid, if the token has expired or is not valid yet, or if the token belongs to another ledger than
        the ledger in use."""
        claims = self._verify_cached(token)
        now = self._clock()
        if claims.exp <= now or max(claims.iat, claims.nbf) > now + _LEEWAY_SECONDS:
            raise NotAuthenticated("a token out of its time")
        if claims.ledger != self._ledger():
            raise NotAuthenticated("a token of another ledger")
        return claims

    def _verify(self, token: str) -> Claims:
        """Verify the signature of a token and return the claims. The times and the ledger in the token are
        not checked. Raises NotAuthenticated if the signature or a claim is invalid."""
        if "=" in token:
            # RFC 7515 section 2. PyJWT ignores padding; it rejects other spellings of the same bytes.
            raise NotAuthenticated("padding in a token")
        try:
            # `read` checks the times: PyJWT would accept a text as a number, and has its own clock.
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
        return claims


class Authorization:
    """Authorization of users by their tokens. `clock` returns epoch seconds."""

    def __init__(self, core: CoreClient, revocations: Revocations, clock: Callable[[], float]) -> None:
        self._core = core
        self._revocations = revocations
        self._clock = clock

    def find_rejection(self, claims: Claims, access: AccessReply | None) -> str | None:
        """Return the reason to reject a token, or None if there is no reason. `access` is the core's reply
        about the user of the token, or None if the core has not replied. Raises LedgerUnavailable if the
        ledger cannot be read."""
        if access is not None and _identify(claims) not in _identify_users(access):
            return "the user was deleted or changed since the login"
        if self._revocations.is_revoked(claims.jti, claims.ledger):
            return "the token was revoked"
        return None

    def check_tokens(self, tokens: list[Claims]) -> list[bool]:
        """Return for each token whether the token still authorizes its user. One call to the core checks all
        tokens. While the core is unavailable, changes of users are not noticed; while the ledger is
        unavailable, revocations are not noticed."""
        try:
            revoked_ids = self._revocations.find_revoked({claims.jti: claims.ledger for claims in tokens})
        except LedgerUnavailable as error:
            _log.error("cannot look up revoked tokens, their event streams stay open: %s", error)
            revoked_ids = set()
        now = self._clock()
        holding = [claims.exp > now and claims.jti not in revoked_ids for claims in tokens]
        try:
            access = self._core.check_access({claims.sub for claims in tokens})
        except GatewayApiError:
            return holding
        users = _identify_users(access) if access.enabled else set()
        return [holds and _identify(claims) in users for holds, claims in zip(holding, tokens, strict=True)]


def _identify(claims: Claims) -> tuple[str, str, str]:
    return claims.sub, claims.role, claims.gen


def _identify_users(access: AccessReply) -> set[tuple[str, str, str]]:
    return {(user.username, user.role, user.generation) for user in access.users}


def is_static_token(presented: str, token: str) -> bool:
    """Return True if the presented token is the static token. The comparison takes the same time wherever the
    tokens differ."""
    return hmac.compare_digest(presented.encode(), token.encode())


class AccessSettings:
    """The access settings in the core: whether the API is enabled, its users, and the static token. `socket`
    is the path of the core's socket. Methods raise CoreUnavailable if a call to the core is necessary and
    fails.

    The core's replies are cached, each with its version. A cached reply is valid while the modification time
    of the core's socket equals the version of the reply: the core first sets the modification time to a new
    version, then stores the change, makes the change effective, and replies. If the modification time never
    equals the version, each request calls the core."""

    def __init__(self, core: CoreClient, socket: Path) -> None:
        self._core = core
        self._socket = socket
        #: Only names in tokens with a right signature are added.
        self._access_by_user: dict[str | None, AccessReply] = {}
        self._settings: ApiSettings | None = None

    def get_access(self, username: str | None, *, timeout: float | None = None) -> AccessReply:
        """Return whether the API is enabled, and the user with this name if the user exists. If `username` is
        None, return no user. `timeout` is the timeout of a call to the core, in seconds."""
        reply = self._access_by_user.get(username)
        if reply is None or not self._is_current(reply):
            names = [] if username is None else [username]
            reply = self._access_by_user[username] = self._core.check_access(names, timeout=timeout)
        return reply

    def get_settings(self) -> ApiSettings:
        """Return the settings of the API, including the static token."""
        reply = self._settings
        if reply is None or not self._is_current(reply):
            reply = self._settings = self._core.get_settings()
        return reply

    def _is_current(self, reply: AccessReply | ApiSettings) -> bool:
        try:
            return self._socket.stat().st_mtime_ns == reply.version
        except OSError:
            return False
