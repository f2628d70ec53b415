"""What a receiver gets about an event, as bytes."""

from gateway_api.hub.sender import make_message
from tests.unit.gateway_api.test_sse import event


def test_a_session_that_comes_is_told_to_the_letter() -> None:
    message = make_message("84a7e8343baf37f9", event())
    assert (message.id, message.event) == ("84a7e8343baf37f9-57", "session.up")
    assert message.body == (
        b'{"event":"session.up","timestamp":"2026-03-01T12:00:00Z",'
        b'"data":{"id":217,"type":"PPPoE","username":"alice","ip_address":"100.64.0.60",'
        b'"interface":"ppp216","at":1772366400,'
        b'"mac_address":"02:00:00:00:00:d8","access_interface":"trunk0.1003"}}'
    )


def test_a_session_whose_rates_change_is_told_to_the_letter() -> None:
    rates = {"rate_down": 250_000_000, "rate_up": 50_000_000, "rate_expires_at": 1_772_370_000}
    message = make_message("life", event(event="session.rate", sequence=59, author="admin", **rates))
    assert (message.id, message.event) == ("life-59", "session.rate")
    assert message.body == (
        b'{"event":"session.rate","timestamp":"2026-03-01T12:00:00Z",'
        b'"data":{"id":217,"type":"PPPoE","username":"alice","ip_address":"100.64.0.60",'
        b'"rate_down":250000000,"rate_up":50000000,"expires_at":1772370000,"at":1772366400,'
        b'"mac_address":"02:00:00:00:00:d8","access_interface":"trunk0.1003"}}'
    )


def test_a_session_that_goes_is_told_to_the_letter() -> None:
    ended = {"bytes_in": 1200, "bytes_out": 34000, "duration_seconds": 61}
    message = make_message("life", event(event="session.down", sequence=58, reason="user_request", **ended))
    assert (message.id, message.event) == ("life-58", "session.down")
    assert message.body == (
        b'{"event":"session.down","timestamp":"2026-03-01T12:00:00Z",'
        b'"data":{"id":217,"username":"alice","reason":"user_request","at":1772366400,'
        b'"mac_address":"02:00:00:00:00:d8","access_interface":"trunk0.1003",'
        b'"bytes_in":1200,"bytes_out":34000,"duration_seconds":61}}'
    )
