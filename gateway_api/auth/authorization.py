"""Whether a token with a valid signature still authorizes its user."""

from collections.abc import Callable

from gateway_api.auth.ledger import Revocations
from gateway_api.auth.tokens import Claims
from gateway_api.base.errors import GatewayApiError
from gateway_api.daemon.commands import Daemon
from gateway_api.wire.core.configuration import AccessReply


class Authorization:
    """`clock` gives epoch seconds."""

    def __init__(self, daemon: Daemon, revocations: Revocations, clock: Callable[[], float]) -> None:
        self._daemon = daemon
        self._revocations = revocations
        self._clock = clock

    def rejection(self, claims: Claims, access: AccessReply) -> str | None:
        """The reason to reject a token; None for a token that authorizes. `access` covers its user."""
        if _user_of(claims) not in _users(access):
            return "the user was deleted or changed since the login"
        if self._revocations.is_revoked(claims.jti):
            return "the token was revoked"
        return None

    def still_allowed(self, tokens: list[Claims]) -> list[bool]:
        """For each of several tokens whether it authorizes still. Costs one call, however many there are.
        Without the core, changes of users do not count."""
        revoked, now = self._revocations.among(claims.jti for claims in tokens), self._clock()
        holding = [claims.exp > now and claims.jti not in revoked for claims in tokens]
        try:
            access = self._daemon.check_access({claims.sub for claims in tokens})
        except GatewayApiError:
            return holding
        users = _users(access) if access.enabled else set()
        return [holds and _user_of(claims) in users for holds, claims in zip(holding, tokens, strict=True)]


def _user_of(claims: Claims) -> tuple[str, str, str]:
    return claims.sub, claims.role, claims.gen


def _users(access: AccessReply) -> set[tuple[str, str, str]]:
    return {(user.username, user.role, user.generation) for user in access.users}
