"""The settings of access: whether the API is enabled, its users, and the static token. The core has them.

The replies of the core are kept, each with its version. A reply counts as long as the core's socket has that
version as its modification time: the core sets another one before a change takes effect. So a request asks
the core only after a change, and each time where the core gives no versions.
"""

from pathlib import Path

from gateway_api.core_client.commands import Daemon
from gateway_api.wire.core.configuration import AccessReply, ApiSettings


class AccessSettings:
    """Raises CoreUnavailable where the core has to be asked. `socket` is that of the core."""

    def __init__(self, daemon: Daemon, socket: Path) -> None:
        self._daemon = daemon
        self._socket = socket
        #: By the name of the user. Only tokens of ours add names.
        self._of_user: dict[str | None, AccessReply] = {}
        self._of_api: ApiSettings | None = None

    def of_user(self, username: str | None, *, timeout: float | None = None) -> AccessReply:
        """Whether the API is enabled, and the user of this name, if there is one."""
        reply = self._of_user.get(username)
        if reply is None or not self._counts(reply):
            names = [] if username is None else [username]
            reply = self._of_user[username] = self._daemon.check_access(names, timeout=timeout)
        return reply

    def of_api(self) -> ApiSettings:
        """With the static token."""
        reply = self._of_api
        if reply is None or not self._counts(reply):
            reply = self._of_api = self._daemon.settings()
        return reply

    def _counts(self, reply: AccessReply | ApiSettings) -> bool:
        try:
            return self._socket.stat().st_mtime_ns == reply.version
        except OSError:
            return False
