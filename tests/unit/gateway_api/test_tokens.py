"""Access tokens, what only looks like one, and which tokens still authorize their users."""

import base64
import hmac
import json
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from typing import Any, Protocol

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_api.auth.ledger import Ledger
from gateway_api.auth.tokens import Authorization, Claims, Tokens
from gateway_contract.base.errors import CoreUnavailable, NotAuthenticated
from gateway_contract.core.configuration import AccessReply, ApiUser, Role
from tests.support.clocks import SteppedClock
from tests.support.ledger import lose, revocations_of

SECRET = b"a secret of at least thirty-two bytes"
NOW = 1_700_000_000
GENERATION = "0123456789abcdef"
LEDGER = "fedcba9876543210"
CLAIMS = {
    "iss": "gateway-api",
    "sub": "alice",
    "role": "admin",
    "gen": GENERATION,
    "ledger": LEDGER,
    "iat": NOW,
    "exp": NOW + 60,
    "jti": "1f",
}


def tokens(now: float = NOW, secret: bytes = SECRET) -> Tokens:
    return Tokens(secret, lambda: LEDGER, lambda: now)


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def signed(payload: Any, header: Any = None, secret: bytes = SECRET, digest: str = "sha256") -> str:
    """A token made by hand: no library stands between the test and a wrong one."""
    head = {"alg": "HS256", "typ": "JWT"} if header is None else header
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (head, payload)]
    body = ".".join(map(base64url, parts))
    return f"{body}.{base64url(hmac.new(secret, body.encode(), digest).digest())}"


def assert_refused(token: str, now: float = NOW) -> None:
    with pytest.raises(NotAuthenticated):
        tokens(now).read(token)


def test_an_issued_token_says_who_it_was_issued_to_and_for_how_long() -> None:
    token, another = (tokens(NOW + 0.9).issue("alice", "operator", GENERATION, 60) for _ in range(2))
    claims = tokens().read(token)
    assert (claims.iss, claims.sub, claims.role) == ("gateway-api", "alice", "operator")
    assert (claims.iat, claims.exp) == (NOW, NOW + 60)
    assert claims.jti != tokens().read(another).jti
    assert jwt.get_unverified_header(token) == {"alg": "HS256", "typ": "JWT"}
    assert set(jwt.decode(token, options={"verify_signature": False})) == set(CLAIMS)


def test_a_token_that_was_read_before_ends_with_its_time() -> None:
    now = float(NOW)
    reader = Tokens(SECRET, lambda: LEDGER, lambda: now)
    token = reader.issue("alice", "operator", GENERATION, 60)
    assert reader.read(token) == reader.read(token)
    now += 60
    with pytest.raises(NotAuthenticated):
        reader.read(token)


def test_a_token_made_by_hand_from_all_that_is_right_holds_and_claims_that_nobody_knows_say_nothing() -> None:
    for claims in (CLAIMS, {**CLAIMS, "more": [1]}):
        assert tokens().read(signed(claims)).sub == "alice"


def test_a_token_without_a_signature_is_refused() -> None:
    for algorithm in ("none", "None", "", None):
        body = ".".join(base64url(json.dumps(part).encode()) for part in ({"alg": algorithm}, CLAIMS))
        assert_refused(f"{body}.")


def test_a_token_with_another_header_is_refused() -> None:
    for algorithm in ("RS256", "EdDSA", "hs256", ["HS256"], 1):
        assert_refused(signed(CLAIMS, {"alg": algorithm, "typ": "JWT"}))
    for extra in ({"crit": ["exp"]}, {"b64": False, "crit": ["b64"]}, {"kid": 1}):
        assert_refused(signed(CLAIMS, {"alg": "HS256", "typ": "JWT", **extra}))
    for header in ({}, b"null", b"{", b"\xff", b"[" * 20_000):
        assert_refused(signed(CLAIMS, header))
    assert_refused(signed(CLAIMS, {"alg": "HS512", "typ": "JWT"}, digest="sha512"))


@pytest.mark.parametrize("secret", [b"", SECRET + b"\n", SECRET[:-1]])
def test_a_token_signed_with_another_secret_is_refused(secret: bytes) -> None:
    assert_refused(signed(CLAIMS, secret=secret))


def test_a_token_whose_claims_were_changed_is_refused() -> None:
    head, _, signature = signed(CLAIMS).split(".")
    assert_refused(f"{head}.{base64url(json.dumps({**CLAIMS, 'sub': 'bob'}).encode())}.{signature}")


@pytest.mark.parametrize(
    ("claim", "value", "now", "holds"),
    [
        *(("exp", NOW + 60, NOW + 59.9, True), ("exp", NOW + 60, NOW + 60, False)),
        # The clock of another worker may be 30 seconds behind.
        *(("iat", NOW, NOW - 30, True), ("iat", NOW, NOW - 31, False)),
        *(("nbf", NOW + 30, NOW, True), ("nbf", NOW + 31, NOW, False)),
    ],
)
def test_a_token_holds_from_its_start_to_its_end(claim: str, value: int, now: float, holds: bool) -> None:
    token = signed({**CLAIMS, claim: value})
    if holds:
        assert tokens(now).read(token).sub == "alice"
    else:
        assert_refused(token, now)


def test_a_claim_of_another_kind_or_value_or_none_is_refused() -> None:
    for name in CLAIMS:
        assert_refused(signed({key: value for key, value in CLAIMS.items() if key != name}))
    for names, values in (
        (("iss", "sub", "role", "gen", "ledger", "jti"), (1, None, ["alice"])),
        (("exp", "iat", "nbf"), (str(NOW), True, NOW + 0.5, float("nan"), -1, 10**400)),
    ):
        for name, value in product(names, values):
            assert_refused(signed({**CLAIMS, name: value}))
    assert_refused(signed({**CLAIMS, "iss": "gateway"}))
    assert_refused(signed({**CLAIMS, "ledger": LEDGER[::-1]}))


def test_a_signed_payload_of_another_shape_is_refused() -> None:
    huge = json.dumps(CLAIMS).replace(str(NOW + 60), "9" * 5000).encode()
    for payload in ([], 1, "text", b"", b"{", b"\xff", b"[" * 20_000, huge):
        assert_refused(signed(payload))


#: The same bits end in another letter: 32 bytes of signature leave two bits of the last letter over.
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def spelled_otherwise(part: str) -> str:
    """The same bytes in base64url, with other bits where no byte is."""
    last = _ALPHABET.index(part[-1])
    other = part[:-1] + _ALPHABET[last ^ 1]
    padding = "=" * (-len(part) % 4)
    assert base64.urlsafe_b64decode(other + padding) == base64.urlsafe_b64decode(part + padding)
    return other


@pytest.mark.parametrize("number", range(3), ids=["header", "claims", "signature"])
@pytest.mark.parametrize("respell", [spelled_otherwise, lambda part: part + "=", lambda part: part + "=="])
def test_a_token_has_one_spelling(number: int, respell: Callable[[str], str]) -> None:
    # RFC 7515 section 2: base64url without padding. Spaces leave bits over in each of the parts.
    head, claims = '{"alg": "HS256", "typ": "JWT" }', json.dumps(CLAIMS)
    parts = [base64url(text.encode().ljust(-(-len(text) // 3) * 3 + 1)) for text in (head, claims)]

    def token(respelled: int | None) -> str:
        body = ".".join(respell(part) if place == respelled else part for place, part in enumerate(parts))
        signature = base64url(hmac.new(SECRET, body.encode(), "sha256").digest())
        return f"{body}.{respell(signature) if respelled == 2 else signature}"

    assert tokens().read(token(None)).sub == "alice"
    assert_refused(token(number))


@given(st.text())
def test_any_text_is_refused_and_nothing_else_happens(text: str) -> None:
    assert_refused(text)


@given(st.binary(), st.binary())
def test_any_signed_bytes_are_refused_and_nothing_else_happens(header: bytes, payload: bytes) -> None:
    assert_refused(signed(payload, header))


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda held: st.lists(held, max_size=3) | st.dictionaries(st.text(), held, max_size=3),
    max_leaves=5,
)


@given(st.sampled_from(sorted({*CLAIMS, "aud", "nbf"})), _values)
def test_a_signed_claim_of_any_value_is_read_or_refused(name: str, value: Any) -> None:
    try:
        assert tokens().read(signed({**CLAIMS, name: value})).iss == "gateway-api"
    except NotAuthenticated as error:
        assert str(error)


ALICE = ApiUser("alice", Role.OPERATOR, "1")


class Core:
    """What the core replies: nothing while it is `gone`."""

    def __init__(self) -> None:
        self.enabled = True
        self.users = (ALICE,)
        self.gone = False

    def check_access(self, usernames: Iterable[str]) -> AccessReply:
        if self.gone:
            raise CoreUnavailable("gone")
        return AccessReply(self.enabled, tuple(user for user in self.users if user.username in usernames))


@pytest.fixture
def core() -> Core:
    return Core()


@pytest.fixture
def authorization(core: Core, ledger: Ledger, clock: SteppedClock) -> Authorization:
    return Authorization(core, revocations_of(ledger, clock), clock)  # type: ignore[arg-type]


class Issuer(Protocol):
    """Makes the claims of a token for a minute."""

    def __call__(self, jti: str = "1f", user: ApiUser = ALICE) -> Claims: ...


@pytest.fixture
def token(ledger: Ledger, clock: SteppedClock) -> Issuer:
    def issue(jti: str = "1f", user: ApiUser = ALICE) -> Claims:
        now = int(clock())
        return Claims(
            "gateway-api", user.username, user.role, user.generation, ledger.name, now, now + 60, jti
        )

    return issue


@pytest.fixture(params=[False, True], ids=["with a core", "without a core"])
def either_way(core: Core, request: pytest.FixtureRequest) -> None:
    core.gone = request.param


def test_an_expired_token_authorizes_no_longer(
    authorization: Authorization, token: Issuer, clock: SteppedClock, either_way: None
) -> None:
    old = token()
    assert authorization.check_tokens([old]) == [True]
    clock.now += 60
    assert authorization.check_tokens([old, token("2f")]) == [False, True]


def test_a_revoked_token_authorizes_no_longer(
    authorization: Authorization, token: Issuer, ledger: Ledger, clock: SteppedClock, either_way: None
) -> None:
    revocations_of(ledger, clock).revoke("1f", int(clock()) + 60)
    assert authorization.check_tokens([token(), token("2f")]) == [False, True]


def test_without_a_ledger_an_expired_token_and_a_changed_user_end_a_stream(
    authorization: Authorization, token: Issuer, core: Core, clock: SteppedClock, tmp_path: Path
) -> None:
    bob = ApiUser("bob", Role.OPERATOR, "1")
    core.users = (ALICE, bob)
    old, of_bob = token(), token("2f", bob)
    clock.now += 30
    new = token("3f")
    lose(tmp_path / "ledger.sqlite")
    assert authorization.check_tokens([old, of_bob, new]) == [True, True, True]
    core.users = (ALICE,)
    assert authorization.check_tokens([old, of_bob, new]) == [True, False, True]
    clock.now += 30
    assert authorization.check_tokens([old, of_bob, new]) == [False, False, True]


@pytest.mark.parametrize(
    "user",
    [
        ApiUser("alice", Role.OPERATOR, "2"),
        ApiUser("alice", Role.ADMIN, "1"),
        ApiUser("bob", Role.OPERATOR, "1"),
    ],
    ids=["another generation", "another role", "another user"],
)
def test_a_token_authorizes_only_the_user_that_it_was_issued_for(
    authorization: Authorization, token: Issuer, core: Core, clock: SteppedClock, user: ApiUser
) -> None:
    core.users = (user,)
    assert authorization.check_tokens([token(), token("2f", user)]) == [False, True]
    access = core.check_access(["alice", "bob"])
    assert authorization.find_rejection(token(), access) == "the user was deleted or changed since the login"
    assert authorization.find_rejection(token("2f", user), access) is None


def test_no_token_authorizes_while_the_api_is_disabled(
    authorization: Authorization, token: Issuer, core: Core, clock: SteppedClock
) -> None:
    core.enabled = False
    assert authorization.check_tokens([token()]) == [False]
