"""The settings of access: whether the API is enabled, its users, and the static token. The core has them.

The replies of the core are kept, each with its version. A reply holds as long as the modification time of the
core's socket is its version. For a change, the core sets that time to the new version, stores the change,
makes it effective, and replies, in this order. So:

- After the reply to a change, no request is judged by the settings before the change.
- A request during a change is judged by the settings before or after the change.
- A core that is killed in between, or cannot store the change, leaves a time that is no reply's version: each
  request calls the core until the next change.
- A core that starts has a new socket, with a time of its own, and so has another core at the same path.
- Each request calls the core if there is no socket, if something else has changed its time, and if the core
  gives no versions.
"""

from pathlib import Path

from gateway_contract.core.configuration import AccessReply, ApiSettings
from gateway_contract.core_client.client import CoreClient


class AccessSettings:
    """The kept replies. `socket` is that of the core. Methods raise CoreUnavailable if they must call the
    core and it does not reply."""

    def __init__(self, core: CoreClient, socket: Path) -> None:
        self._core = core
        self._socket = socket
        #: By the name of the user. Only tokens of ours add names.
        self._of_user: dict[str | None, AccessReply] = {}
        self._of_api: ApiSettings | None = None

    def of_user(self, username: str | None, *, timeout: float | None = None) -> AccessReply:
        """Return whether the API is enabled, and the user of this name, if there is one."""
        reply = self._of_user.get(username)
        if reply is None or not self._holds(reply):
            names = [] if username is None else [username]
            reply = self._of_user[username] = self._core.check_access(names, timeout=timeout)
        return reply

    def of_api(self) -> ApiSettings:
        """Return the settings of the API, with the static token."""
        reply = self._of_api
        if reply is None or not self._holds(reply):
            reply = self._of_api = self._core.settings()
        return reply

    def _holds(self, reply: AccessReply | ApiSettings) -> bool:
        try:
            return self._socket.stat().st_mtime_ns == reply.version
        except OSError:
            return False
