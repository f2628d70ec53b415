"""Whether the bearer of a token is still who the token says."""

from collections.abc import Callable

from gateway_api.auth.ledger import Revocations
from gateway_api.auth.tokens import Claims
from gateway_api.base.errors import GatewayApiError
from gateway_api.daemon.commands import Daemon
from gateway_api.wire.core.configuration import ApiAccess, ApiUser


class Standing:
    """`clock` gives epoch seconds."""

    def __init__(self, daemon: Daemon, revocations: Revocations, clock: Callable[[], float]) -> None:
        self._daemon = daemon
        self._revocations = revocations
        self._clock = clock

    def objection(self, claims: Claims, api_access: ApiAccess) -> str | None:
        """Why a token that was good doesn't hold any more, as of a configuration; None if it does."""
        user = api_access.user(claims.sub)
        if user is None or not _is_of(claims, user):
            return "the user is gone, or has changed since"
        if self._revocations.is_revoked(claims.jti):
            return "the token was revoked"
        return None

    def still_allowed(self, tokens: list[Claims]) -> list[bool]:
        """For each of several tokens whether its bearer may go on, as far as can be known."""
        revoked, now = self._revocations.among(claims.jti for claims in tokens), self._clock()
        standing = [claims.exp > now and claims.jti not in revoked for claims in tokens]
        try:
            api_access = self._daemon.api_access()
        except GatewayApiError:
            # Whose right has changed meanwhile, nobody knows.
            return standing
        users = {user.username: user for user in api_access.users} if api_access.enabled else {}
        return [
            good and claims.sub in users and _is_of(claims, users[claims.sub])
            for good, claims in zip(standing, tokens, strict=True)
        ]


def _is_of(claims: Claims, user: ApiUser) -> bool:
    return (claims.gen, claims.role) == (user.generation, user.role)
