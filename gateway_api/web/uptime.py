"""Durations as people read them: `1d 02:03:04`."""


def uptime(since: float, now: float) -> str:
    """From one moment to another, both in epoch seconds: hours, minutes and seconds, after whole days if
    there are any. None is negative: two clocks need not agree."""
    minutes, seconds = divmod(max(0, int(now - since)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    clock = f"{hours:02}:{minutes:02}:{seconds:02}"
    return f"{days}d {clock}" if days else clock
