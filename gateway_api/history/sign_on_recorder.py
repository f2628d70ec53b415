"""Records failed sign-ons in the history, as `recorder.py` does sessions."""

import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import gevent

from gateway_api.base.errors import CoreLacksMethod
from gateway_api.base.process import ThreadPool, on_thread
from gateway_api.base.retry import UNTIL_ANOTHER_CORE
from gateway_api.core_client.calls import Calls
from gateway_api.history.sign_on_store import SignOnPlace, SignOnStore
from gateway_api.wire.core.sign_ons import SubscribeFailedSignOns

_log = logging.getLogger("gunicorn.error")

#: No run of the core has this name.
_NOWHERE = SignOnPlace("none", 0)


class SignOnRecorder:
    """`pause` takes seconds."""

    def __init__(
        self,
        core: Calls,
        path: Path,
        pool: ThreadPool,
        pause: Callable[[float], None] = gevent.sleep,
    ) -> None:
        self._core = core
        self._path = path
        self._pool = pool
        self._pause = pause
        self._warned = False

    def record(self) -> None:
        """Records until the core breaks off, or the file is replaced. Raises CoreUnavailable, OSError and
        sqlite3.Error."""
        with closing(on_thread(self._pool, SignOnStore, self._path)) as store:
            place = on_thread(self._pool, store.place) or _NOWHERE
            while store.is_current:
                try:
                    place = self._follow(store, place)
                except CoreLacksMethod as error:
                    if not self._warned:
                        _log.warning("the history has no failed sign-ons: %s", error)
                    self._warned = True
                    self._pause(UNTIL_ANOTHER_CORE)

    def _follow(self, store: SignOnStore, place: SignOnPlace) -> SignOnPlace:
        """Records up to the next hole. Returns where it has come to."""
        for batch in self._core.follow(SubscribeFailedSignOns(*place)):
            self._warned = False
            if batch.gap:
                if place.boot_id == batch.boot_id:
                    lost = batch.oldest - 1 - place.sequence
                    _log.warning("the history has a hole: %d failed sign-ons are not known", lost)
                return SignOnPlace(batch.boot_id, batch.oldest - 1)
            if batch.failures:
                place = SignOnPlace(batch.boot_id, batch.failures[-1].sequence)
                on_thread(self._pool, store.add, batch.failures, place)
            if not store.is_current:
                break
        return place
