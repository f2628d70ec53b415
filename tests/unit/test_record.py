"""What the audit log keeps of a request."""

from typing import Any

import pytest

from gateway_api.audit.record import masked, of_session
from gateway_api.base.logs import MASK


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_secret_is_masked_in_every_object_of_an_array(kind: Any) -> None:
    assert masked(kind([{"secret": "hidden", "name": "a"}])) == [{"secret": MASK, "name": "a"}]


SESSION = {"id": 7, "username": "alice", "rate_down_bps": 100_000_000}
RATES = {"rate_down_bps": 250_000_000, "rate_up_bps": 1_500_000}


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (SESSION, None, " (alice)"),
        (SESSION, RATES, " (alice, 250 Mbit/s down, 1.5 Mbit/s up)"),
        (
            SESSION,
            {**RATES, "rate_expires_at": 1_795_275_113},
            " (alice, 250 Mbit/s down, 1.5 Mbit/s up, until 2026-11-21T15:31:53Z)",
        ),
        (SESSION, {"rate_down_bps": "fast", "rate_up_bps": None}, " (alice)"),
        ({"interface": "trunk0.100", "sessions": []}, None, ""),
        ([{"path": "system.hostname", "value": "bng1"}], [], ""),
        (None, {"id": 3, "total": 20}, ""),
    ],
)
def test_a_message_about_a_session_ends_with_its_username_and_new_rates(
    before: Any, after: Any, text: str
) -> None:
    assert of_session(before, after) == text
