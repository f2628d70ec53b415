"""Thousands of requests made up from the OpenAPI document alone, right ones and wrong ones: every answer is
one that the document has."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.specs.openapi.checks import ignored_auth, positive_data_acceptance

from tests.support.stack import Api, issued, running_stack

CASES = 5000
ROLES = ("admin", "operator")

#: Of one kind and one operation.
_CASES = 25
#: Each of these takes a login, or waits for events.
_SLOW = {"login_log_in": 20, "login_log_out": 10, "events_subscribers": 10, "traffic_watch": 10}
#: The end of their paths.
_STREAMS = ("/events/subscribers", "{id}/traffic")
_SEED = 20260301

load_all_checks()
#: All but one: it sends every request twice more, and test_routes asks every route without a token and with
#: wrong ones. Two look only at what the examples and the coverage of schemathesis' own runner make up.
_CHECKS = [check for check in CHECKS.get_all() if check is not ignored_auth]
#: Right requests may also find what has changed meanwhile, or be longer than a head may be; wrong ones
#: may be refused for those reasons before anybody looks at what is wrong.
_MORE_STATUSES = ["412", "414", "431"]
_CONFIG = {
    # Each request has a valid token: see `_send`.
    "generation": {"with-security-parameters": False},
    "checks": {
        "positive_data_acceptance": {
            "expected-statuses": ["2xx", "304", "401", "403", "404", "409", "429", *_MORE_STATUSES]
        },
        "negative_data_rejection": {
            "expected-statuses": ["400", "401", "403", "404", "405", "409", "413", "429", *_MORE_STATUSES]
        },
    },
}

#: Rules that JSON Schema and OpenAPI can't state, as they are told: a request made from the document alone
#: may break them, and no others.
_UNSTATED = re.compile(
    # A cursor is what a page gave; and one parameter can't require another.
    r"must be what the last page gave as next_cursor|is required with a cursor"
    r"|is required without rate_up|must not be given with expires_in"
    # Which paths there are, and what fits there, the core knows.
    r"|is not a known path(; a key with dots .*)?|must not be the text .*: delete removes it"
    # So it does of a whole candidate.
    r"|is not a known field(; known fields: .*)?|must be a value: the mask hides nothing in the candidate"
    # How much a number and a unit are together.
    r"|must be at least 8 kbit/s, not .*|must not be over 400 Gbit/s"
    # Which texts are a time, in the many forms of ISO 8601.
    r"|must be epoch seconds, or a time .*"
    # Which times are in the future.
    r"|must be in the next 366 days|must not be in the future: .*"
    # What an address is and means, and how long a name is.
    r"|must be an IP address, .*|must not be a link-local, .*|must name a host.*|must have an IPv6 .*"
    r"|must have a port .*"
)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """One with sessions to spare, and events all the time."""
    with running_stack(tmp_path_factory.mktemp("cases"), sessions=1000, arrivals=20) as (api, _):
        # What is made up is nobody's: none of it may be sent anything.
        nobody = {"path": "api.webhooks.denied_networks", "value": ["0.0.0.0/0", "::/0"]}
        assert api.send("POST", "/system/config/set", json=nobody).ok
        assert api.send("POST", "/system/config/commit").ok
        yield api


class Run:
    """Sends cases as one role, and counts the answers by operation and status."""

    def __init__(self, api: Api, role: str) -> None:
        self._api = api
        self._role = role
        self.answers: Counter[tuple[str, int]] = Counter()

    def send_all(self) -> None:
        document = self._api.send("GET", "/openapi.json", None).json()
        config = schemathesis.Config.from_dict(_CONFIG)
        for found in schemathesis.openapi.from_dict(document, config=config).get_all_operations():
            operation = found.ok()
            for mode in GenerationMode:
                # There are operations with nothing that could be wrong.
                with suppress(Unsatisfiable):
                    self._send(operation, operation.as_strategy(mode))
            there = self._there(operation)
            if there:
                self._send(operation, operation.as_strategy(path_parameters=there))
            for examples in operation.get_strategies_from_examples(path_parameters=there):
                self._send(operation, examples)

    def _send(self, operation: APIOperation, cases: SearchStrategy[Case]) -> None:
        @seed(_SEED)
        @settings(
            max_examples=_SLOW.get(operation.definition.raw["operationId"], _CASES),
            database=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=cases)
        def send(case: Case) -> None:
            verify = {"verify": self._api.environment["GATEWAY_CA"]}
            answer = case.call(
                base_url=self._api.url,
                session=self._api.session,
                **verify,
                headers={"Authorization": f"Bearer {self._token(operation)}"},
                timeout=1 if operation.path.endswith(_STREAMS) else 30,
            )
            self.answers[operation.label, answer.status_code] += 1
            case.validate_response(
                answer, checks=_CHECKS, excluded_checks=_excluded(answer), transport_kwargs=verify
            )

        send()
        if operation.path.endswith("/logout-everywhere"):
            self._api.forget_tokens()
        if operation.label == "PUT /api/v1/system/config/candidate":
            # Or there would be nothing to commit that holds.
            assert self._api.send("POST", "/system/config/discard").ok

    def _token(self, operation: APIOperation) -> str:
        if "/logout" not in operation.path:
            return self._api.token(self._role)
        # The others would go on without one. A login for each would take a hash of the password.
        environment = self._api.environment
        state = Path(environment["CORE_SOCKET"]).parent
        return issued(state, environment[f"{self._role.upper()}_USER"], 600)

    def _there(self, operation: APIOperation) -> dict[str, Any]:
        """What the path names as it is now, so that not all cases are about what doesn't exist."""
        there: dict[str, Callable[[], Any]] = {
            "id": lambda: self._api.get("/subscribers", params={"limit": 1})["sessions"][0]["id"],
            "revision": lambda: 1,
            "job": lambda: next((one["id"] for one in self._api.get("/subscribers/jobs")["jobs"]), 1),
            "webhook": lambda: next((one["id"] for one in self._api.get("/webhooks")["webhooks"]), "none"),
        }
        return {name: value() for name, value in there.items() if f"{{{name}}}" in operation.path}


def _excluded(answer: requests.Response) -> list[Any]:
    """The check that a right request is taken, where the server refuses it by unstated rules alone."""
    if answer.status_code != 400:
        return []
    problems = answer.json().get("errors", [])
    unstated = problems and all(_UNSTATED.fullmatch(problem["message"]) for problem in problems)
    return [positive_data_acceptance] if unstated else []


@pytest.mark.parametrize("role", ROLES)
def test_every_answer_is_in_the_document(stack: Api, role: str) -> None:
    run = Run(stack, role)
    run.send_all()
    print(*sorted(run.answers.items()), sep="\n")
    assert run.answers.total() >= CASES / len(ROLES)
