"""Durations as people read them."""

from gateway_api.web.routes.token_profile import uptime

DAY = 86_400


def test_a_duration_is_days_and_a_clock() -> None:
    for seconds, text in (
        (0, "00:00:00"),
        (59, "00:00:59"),
        (60, "00:01:00"),
        (3599.99, "00:59:59"),
        (3600, "01:00:00"),
        (DAY - 1, "23:59:59"),
        (DAY, "1d 00:00:00"),
        (DAY + 2 * 3600 + 3 * 60 + 4, "1d 02:03:04"),
        (400 * DAY, "400d 00:00:00"),
        (-1, "00:00:00"),
    ):
        assert uptime(0, seconds) == text
        assert uptime(1_700_000_000, 1_700_000_000 + seconds) == text
