"""Which gateway a command calls."""

import jwt
import pytest

from gateway_api.cli.ctl.contexts import Context, Contexts
from gateway_api.cli.ctl.failures import CommandFailure

LAB = Context("lab", "https://lab:8443", "/lab.pem", "admin", "token of lab")
BNG = Context("bng", "https://bng:8443", None, "admin", "token of bng")
KNOWN = Contexts("lab", {"lab": LAB, "bng": BNG})


def test_a_named_context_outdoes_the_environment() -> None:
    assert KNOWN.chosen("bng", {"GATEWAY_URL": LAB.url}) == BNG


def test_the_environment_outdoes_the_current_context() -> None:
    assert KNOWN.chosen(None, {"GATEWAY_URL": "https://bng:8443/"}) == BNG


def test_the_current_context_is_the_default() -> None:
    assert KNOWN.chosen(None, {}) == LAB


def test_without_a_context_the_gateway_is_this_machine() -> None:
    assert Contexts().chosen(None, {}) == Context("localhost:8443", "https://localhost:8443")


def test_an_unknown_url_has_no_token() -> None:
    assert KNOWN.chosen(None, {"GATEWAY_URL": "https://new"}) == Context("new", "https://new")


def test_a_name_with_another_url_has_no_token() -> None:
    assert KNOWN.at(BNG.url, None, "lab") == Context("lab", BNG.url)


def test_of_two_contexts_with_a_url_it_is_the_current_one() -> None:
    second = Context("second", LAB.url, token="another token")
    both = Contexts("second", {"lab": LAB, "second": second})
    assert both.chosen(None, {"GATEWAY_URL": LAB.url}) == second


@pytest.mark.parametrize("url", ["http://bng", "bng:8443", "https://", "https://admin:word@bng", ""])
def test_a_url_that_could_leak_a_token_is_refused(url: str) -> None:
    with pytest.raises(CommandFailure):
        Contexts().at(url, None)


def test_a_removed_context_is_no_longer_the_current_one() -> None:
    left = KNOWN.without("lab")
    assert (left.current, list(left.known)) == (None, ["bng"])


@pytest.mark.parametrize(("now", "is_logged_in"), [(99.0, True), (100.0, False)])
def test_who_has_an_expired_token_is_not_logged_in(now: float, *, is_logged_in: bool) -> None:
    token = jwt.encode({"exp": 100}, "of another thirty-two bytes, say.", "HS256")
    assert Context("lab", "https://lab", token=token).is_logged_in(now) is is_logged_in


def test_who_has_no_token_is_not_logged_in() -> None:
    assert not Context("lab", "https://lab").is_logged_in(0.0)


def test_a_token_that_does_not_say_when_it_expires_is_valid() -> None:
    assert Context("lab", "https://lab", token="opaque").is_logged_in(1e12)
