"""Whether a caller has access to an operation.

A token of ours that is in its time lets the read of an operation go to the core with the check, in one
exchange. With any other token, nothing of the request is read before the check is decided.
"""

from abc import ABC, abstractmethod
from contextlib import suppress

from flask import request

from gateway_api.auth.tokens import AUTHOR, Claims, is_token
from gateway_api.base.errors import CoreUnavailable, Disabled, NotAllowed, NotAuthenticated
from gateway_api.base.settings import Authentication
from gateway_api.core_client.commands import Daemon
from gateway_api.web import page_token
from gateway_api.web.call import current, identify
from gateway_api.web.operation import Access
from gateway_api.web.services import daemon, parts, services
from gateway_api.wire.core.configuration import AccessReply

_ADMIN = "admin"
_NO_TOKEN = "The running configuration has no api.auth_token"  # noqa: S105 - a sentence


class Check(ABC):
    """The access check of the current request. It asks the core each time, so that a commit counts on the
    next request. It is decided once: it raises Disabled, NotAuthenticated or NotAllowed, or the caller has
    access. `is_verified`: the token is one of ours, in its time."""

    is_verified = False

    def __init__(self, access: Access) -> None:
        self._access = access
        self._is_decided = access is Access.ALWAYS

    def decide(self) -> None:
        """Decides, unless it is decided. Raises CoreUnavailable, too: but without a token NotAuthenticated,
        and nothing for STATIC."""
        if self._is_decided:
            return
        try:
            self._ask()
        except CoreUnavailable:
            if self._access is Access.STATIC:
                self._is_decided = True
                return
            if self._access is not Access.OPEN:
                self._require_token()
            raise

    def core(self) -> Daemon:
        """The core, for one read. The check is decided before anybody gets the reply."""
        self.decide()
        return daemon()

    @abstractmethod
    def _ask(self) -> None:
        """Decides, by the reply of the core."""

    @abstractmethod
    def _require_token(self) -> object:
        """Raises NotAuthenticated without a token that may be valid."""

    def _require_role(self, role: str) -> None:
        if role != _ADMIN and self._access is Access.ADMIN:
            raise NotAllowed


class UserTokenCheck(Check):
    def __init__(self, access: Access) -> None:
        super().__init__(access)
        if access is not Access.ALWAYS:
            with suppress(NotAuthenticated):
                current().claims = services().tokens.read(_user_token())
        self._claims = current().claims
        self.is_verified = self._claims is not None

    def core(self) -> Daemon:
        if self._claims is None or self._is_decided:
            return super().core()
        return daemon().checking_access([self._claims.sub], self._by)

    def decide_without_core(self) -> None:
        """While the core hangs: nobody knows whether the user was changed since the login."""
        if self._is_decided:
            return
        claims = self._require_token()
        if services().revocations.is_revoked(claims.jti):
            raise NotAuthenticated("the token was revoked")
        identify(claims.sub, claims.role)

    def _ask(self) -> None:
        self._by(services().daemon.check_access([self._claims.sub] if self._claims else []))

    def _require_token(self) -> Claims:
        if self._claims is None:
            raise NotAuthenticated("no token of ours")
        return self._claims

    def _by(self, access: AccessReply) -> None:
        self._is_decided = True
        current().access = access
        if not access.enabled:
            raise Disabled
        if self._access not in (Access.OPEN, Access.STATIC):
            claims = self._require_token()
            rejection = services().authorization.rejection(claims, access)
            if rejection is not None:
                raise NotAuthenticated(rejection)
            identify(claims.sub, claims.role)
            self._require_role(claims.role)


class _StaticTokenCheck(Check):
    """Only the core knows the token: before the check, any text may be valid."""

    def _ask(self) -> None:
        access = daemon().token_access()
        self._is_decided = True
        if not access.enabled:
            raise Disabled
        if access.auth_token is None:
            raise Disabled(_NO_TOKEN)
        if self._access not in (Access.OPEN, Access.STATIC):
            if not is_token(_bearer_token(), access.auth_token):
                raise NotAuthenticated("another token")
            identify(AUTHOR, _ADMIN)
            self._require_role(_ADMIN)

    def _require_token(self) -> None:
        _bearer_token()


_CHECKS: dict[Authentication, type[Check]] = {
    Authentication.USER_TOKEN: UserTokenCheck,
    Authentication.STATIC_TOKEN: _StaticTokenCheck,
}


def check(access: Access) -> Check:
    """The check of the current request."""
    return _CHECKS[parts().profile.authentication](access)


def signed_in() -> Claims | None:
    """The claims of the request's token, None without a valid one. In views that require no token."""
    claims, access = current().claims, current().access
    if claims is None or access is None or services().authorization.rejection(claims, access) is not None:
        return None
    identify(claims.sub, claims.role)
    return claims


def _user_token() -> str:
    """Raises NotAuthenticated when there is none."""
    # The cookie never stands in for a header that is wrong.
    return _bearer_token() if "Authorization" in request.headers else page_token.presented()


def _bearer_token() -> str:
    """Raises NotAuthenticated when there is none."""
    # RFC 6750 section 2.1. Not request.authorization: it decodes other schemes, and fails on their data.
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise NotAuthenticated("no bearer token")
    return token.strip()
