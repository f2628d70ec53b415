"""A record of the audit log: one line of ASCII, of a bounded length, without secrets."""

import json
import string
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_api.audit.record import MAX_VALUE_CHARACTERS, derive_result, describe_session, mask_secrets
from gateway_contract.base.logs import MASK, mask_text
from gateway_contract.configuration import mask_path
from tests.support.audit import a_record
from tests.support.documents import SECRET_HASH

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
    assert describe_session(before, after) == text


@pytest.mark.parametrize(
    ("status", "result"),
    [(None, "unanswered"), (399, "done"), (400, "refused"), (499, "refused"), (500, "failed")],
)
def test_a_result_follows_from_the_status(status: int | None, result: str) -> None:
    assert derive_result(status) == result


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_record_is_one_line_of_ascii_whatever_is_in_it(text: str) -> None:
    line = a_record(path=text, message=text, body={text: [text]}).text()
    assert all(32 <= ord(character) < 127 for character in line)
    assert json.loads(line)["body"] == {text: [text]}


@pytest.mark.parametrize("name", ["body", "before", "after"])
def test_a_long_value_is_cut_and_says_so(name: str) -> None:
    kept = json.loads(a_record(**{name: {"events": ["\u2028" * 5000]}}).text())[name]
    assert kept["cut"] is True
    assert kept["characters"] > 30_000
    assert kept["beginning"].startswith('{"events":["')
    assert len(json.dumps(kept)) < 2 * MAX_VALUE_CHARACTERS


# Secrets

SECRET_PATHS = [
    *("radius.secret", "api.users.alice.password_hash", 'bgp.neighbors."10.0.0.1".password'),
    *(
        "subscribers.local.0.password",
        'radius."secret"',
        "RADIUS.SECRET",
        "radius.secrets",
        "radius.secret.0",
    ),
    *("api.token_lifetime", "radius secret", "radius.secret ", "", "radius..secret", "radius.secret="),
    *('"radius.secret', "radius/secret"),
]


def bodies(secret: str) -> Iterator[Any]:
    """Bodies with a secret where one might be."""
    yield {"username": "admin", "password": secret}
    yield {"url": "http://x/", "events": [], "secret": {"a": [secret]}}
    for path in SECRET_PATHS:
        for value in (secret, [secret], {"a": secret}, json.dumps({"a": secret})):
            yield {"path": path, "value": value}
            yield {"operations": [{"op": "set", "path": path, "value": value}]}
    for value in ({"secret": secret}, [{"password_hash": secret}], {"a": {"api-token": secret}}):
        yield {"path": "radius", "value": value}
        yield {"path": "radius", "value": f" {json.dumps(value)}"}
        yield {"path": "radius", "value": json.dumps(value)[:-1]}
    yield {"path": f"radius.secret {secret}"}
    yield {"path": f"radius.secret.{secret}"}
    yield {"path": f"radius.secret={secret}", "value": 1}
    yield {"path": {"secret": secret}, "value": secret}


@given(st.text(string.ascii_letters + string.digits, min_size=12, max_size=24))
def test_a_secret_is_nowhere_in_a_record(secret: str) -> None:
    for body in bodies(secret):
        for refused in (False, True):
            assert secret not in json.dumps(mask_secrets(body, refused=refused)), body


def test_a_value_is_kept_unless_the_configuration_refused_it() -> None:
    body = {"path": "qos.default_down", "value": "200mbit"}
    assert mask_secrets(body) == body
    assert mask_secrets(body, refused=True) == {**body, "value": MASK}
    deletion = {"path": "qos.default_down", "value": None, "secret": None}
    assert mask_secrets(deletion, refused=True) == deletion


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_secret_is_masked_in_every_object_of_an_array(kind: Any) -> None:
    assert mask_secrets(kind([{"secret": "hidden", "name": "a"}])) == [{"secret": MASK, "name": "a"}]


@pytest.mark.parametrize(
    "text",
    [
        SECRET_HASH,
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZG1pbiJ9.c2lnbmF0dXJl",
    ],
)
def test_a_text_that_looks_like_a_secret_is_masked_wherever_it_is(text: str) -> None:
    assert mask_text(f"see {text} there") == f"see {MASK} there"
    assert mask_secrets({"comment": text, "value": [text]}) == {"comment": MASK, "value": [MASK]}


def test_the_query_of_a_url_is_masked_and_no_other_question() -> None:
    masked_url = mask_text("https://hooks.example.net/a?token=abc123&b=1#c")
    assert masked_url == f"https://hooks.example.net/a?{MASK}#c"
    for text in ("what? a=b", "is it so?", "x?y"):
        assert mask_text(text) == text


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("qos.default_down", "qos.default_down"),
        ('api.users."al ice".password_hash', 'api.users."al ice".password_hash'),
        ("radius.secret.hunter2", f"radius.secret.{MASK}"),
        ("radius.secret hunter2", MASK),
    ],
)
def test_a_path_is_shown_up_to_the_name_of_a_secret(path: str, shown: str) -> None:
    assert mask_path(path) == shown
