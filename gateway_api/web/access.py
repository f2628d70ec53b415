"""Whether a caller has access to an operation.

A token of ours that is in its time lets the read of an operation go to the core with the check, in one
exchange. With any other token, nothing of the request is read before the check is decided.
"""

from abc import ABC, abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import Self

from gateway_api.auth.tokens import AUTHOR, Claims, is_token
from gateway_api.base.errors import CoreUnavailable, Disabled, NotAllowed, NotAuthenticated
from gateway_api.base.settings import Authentication
from gateway_api.core_client.commands import Daemon
from gateway_api.web import page_token
from gateway_api.web.operation import Access
from gateway_api.web.request import ApiRequest, current
from gateway_api.web.services import daemon, parts, services
from gateway_api.wire.core.configuration import AccessReply

_ADMIN = "admin"
_NO_TOKEN = "The running configuration has no api.auth_token"  # noqa: S105 - a sentence


class Check(ABC):
    """The access check of a request. It asks the core each time, so that a commit counts on the next request.

    It is decided once: it raises Disabled, NotAuthenticated, NotAllowed or CoreUnavailable, or the caller has
    access. It is decided when its `with` begins; where a read takes it along, with the reply to that, or when
    its `with` ends. So a caller without access gets no error of what stands in between."""

    def __init__(self, request: ApiRequest) -> None:
        self._request = request
        operation = request.operation
        self._access = Access.STATIC if operation is None else operation.access
        self._has_read = operation is not None and operation.read is not None
        self._is_decided = self._access is Access.ALWAYS

    def __enter__(self) -> Self:
        if not self._may_wait():
            self.decide()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # If it is not decided, it would fail for the same reason, after another wait.
        if not isinstance(error, CoreUnavailable):
            self.decide()

    def decide(self) -> None:
        """Decides, unless it is decided. While the core is unavailable, a caller without a token gets
        NotAuthenticated, and STATIC is allowed."""
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
        return daemon()

    def _may_wait(self) -> bool:
        """Whether a read takes the check along."""
        return False

    @abstractmethod
    def _ask(self) -> None:
        """Decides, by the reply of the core."""

    @abstractmethod
    def _require_token(self) -> object:
        """Raises NotAuthenticated without a token that may be valid."""

    def _require_role(self, role: str) -> None:
        if role != _ADMIN and self._access is Access.ADMIN:
            raise NotAllowed


class _UserTokenCheck(Check):
    def __init__(self, request: ApiRequest) -> None:
        super().__init__(request)
        if not self._is_decided:
            with suppress(NotAuthenticated):
                request.claims = services().tokens.read(_user_token(request))

    def decide(self) -> None:
        operation, claims = self._request.operation, self._request.claims
        if self._is_decided or operation is None or claims is None or not operation.without_core:
            super().decide()
            return
        # The core may hang: nobody knows whether the user was changed since the login.
        self._is_decided = True
        if services().revocations.is_revoked(claims.jti, claims.ledger):
            raise NotAuthenticated("the token was revoked")
        self._request.identify(claims.sub, claims.role)

    def core(self) -> Daemon:
        claims = self._request.claims
        if claims is None or self._is_decided:
            return super().core()
        return daemon().checking_access([claims.sub], self._by)

    def _may_wait(self) -> bool:
        return self._has_read and self._request.claims is not None

    def _ask(self) -> None:
        claims = self._request.claims
        self._by(services().daemon.check_access([claims.sub] if claims else []))

    def _require_token(self) -> Claims:
        if self._request.claims is None:
            raise NotAuthenticated("no token of ours")
        return self._request.claims

    def _by(self, access: AccessReply) -> None:
        self._is_decided = True
        self._request.access = access
        if not access.enabled:
            raise Disabled
        if self._access not in (Access.OPEN, Access.STATIC):
            claims = self._require_token()
            rejection = services().authorization.rejection(claims, access)
            if rejection is not None:
                raise NotAuthenticated(rejection)
            self._request.identify(claims.sub, claims.role)
            self._require_role(claims.role)


class _StaticTokenCheck(Check):
    """Only the core knows the token: before the check, any text may be valid."""

    def _ask(self) -> None:
        settings = daemon().settings()
        self._is_decided = True
        if not settings.enabled:
            raise Disabled
        if settings.auth_token is None:
            raise Disabled(_NO_TOKEN)
        if self._access not in (Access.OPEN, Access.STATIC):
            if not is_token(_bearer_token(self._request), settings.auth_token):
                raise NotAuthenticated("another token")
            self._request.identify(AUTHOR, _ADMIN)
            self._require_role(_ADMIN)

    def _require_token(self) -> None:
        _bearer_token(self._request)


_CHECKS: dict[Authentication, type[Check]] = {
    Authentication.USER_TOKEN: _UserTokenCheck,
    Authentication.STATIC_TOKEN: _StaticTokenCheck,
}


def check(request: ApiRequest) -> Check:
    """The check of a request for its operation."""
    return _CHECKS[parts().profile.authentication](request)


def signed_in() -> Claims | None:
    """The claims of the request's token, None without a valid one. In views that require no token."""
    request = current()
    claims, access = request.claims, request.access
    if claims is None or access is None or services().authorization.rejection(claims, access) is not None:
        return None
    request.identify(claims.sub, claims.role)
    return claims


def _user_token(request: ApiRequest) -> str:
    """Raises NotAuthenticated when there is none."""
    # The cookie never stands in for a header that is wrong.
    return _bearer_token(request) if "HTTP_AUTHORIZATION" in request.environ else page_token.presented()


def _bearer_token(request: ApiRequest) -> str:
    """Raises NotAuthenticated when there is none."""
    # RFC 6750 section 2.1. Not request.authorization: it decodes other schemes, and fails on their data.
    scheme, _, token = request.environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise NotAuthenticated("no bearer token")
    return str(token.strip())
