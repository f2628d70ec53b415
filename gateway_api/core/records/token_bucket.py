"""A limit of a rate, with a burst."""


class TokenBucket:
    """Earns `rate` tokens a second, up to `burst`. It is full at first; `now` is monotonic seconds."""

    def __init__(self, rate: float, burst: int, now: float = 0.0) -> None:
        self._rate = rate
        self._burst = float(burst)
        self._tokens = self._burst
        self._at = now

    def take(self, now: float) -> bool:
        """Takes a token. False if there is none."""
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._rate)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
