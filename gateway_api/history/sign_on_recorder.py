"""Records failed sign-ons in the history, as `recorder.py` does sessions."""

import logging
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import gevent

from gateway_api.base.errors import CoreLacksMethod
from gateway_api.base.process import ThreadPool, on_thread
from gateway_api.core_client.sign_ons import SignOns
from gateway_api.history.sign_on_store import SignOnPlace, SignOnStore

_log = logging.getLogger("gunicorn.error")

#: Seconds until a core that does not tell of failed sign-ons is asked again: it may be a new one then.
_PAUSE = 60.0
#: No run of the core has this name.
_NOWHERE = SignOnPlace("none", 0)


class SignOnRecorder:
    """`pause` takes seconds."""

    def __init__(
        self,
        failures: SignOns,
        path: Path,
        pool: ThreadPool,
        pause: Callable[[float], None] = gevent.sleep,
    ) -> None:
        self._failures = failures
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
                    self._pause(_PAUSE)

    def _follow(self, store: SignOnStore, place: SignOnPlace) -> SignOnPlace:
        """Records up to the next hole. Returns where it has come to."""
        for batch in self._failures.after(*place):
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
