"""The OpenAPI document: whole, right by the judgement of others, and what the routes do."""

import gzip
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from gateway_api import openapi
from tests import npm
from tests.receivers import Receiver
from tests.routes import ADMIN, ALWAYS, OPEN, ROUTES, Route
from tests.sse import listen
from tests.stack import Api, wait_for

FILE = Path(__file__).parent.parent / "etc" / "openapi.json"
DOCUMENT = json.loads(openapi.text())

DESCRIBED = [route for route in ROUTES if not route.part_of_a_page]
SCHEMAS = DOCUMENT["components"]["schemas"]


def path(route: Route) -> str:
    return route.path if route.path == "/metrics" else f"/api/v1{route.path}"


def operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][path(route)][route.method.lower()]
    return found


def named(routes: list[Route]) -> Any:
    return pytest.mark.parametrize("route", routes, ids=str)


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = SCHEMAS[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def fits(name: str, value: Any) -> None:
    """Fails for what isn't as the schema of that name has it."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    Draft202012Validator(schema).validate(value)


# As a document


def test_the_file_is_what_make_openapi_writes() -> None:
    assert FILE.read_text() == openapi.text()


def test_a_validator_of_others_finds_nothing_wrong() -> None:
    assert list(OpenAPIV31SpecValidator(DOCUMENT).iter_errors()) == []


@pytest.mark.slow
def test_a_linter_of_others_recommends_nothing(tmp_path: Path) -> None:
    spectral = npm.installed(tmp_path, "@stoplight/spectral-cli@6.16.3") / "spectral"
    rules = tmp_path / "rules.yaml"
    rules.write_text('extends: ["spectral:oas"]\n')
    command = [spectral, "lint", "--fail-severity", "hint", "--ruleset", rules, FILE]
    linted = subprocess.run(command, capture_output=True, text=True, check=False)
    assert linted.returncode == 0, linted.stdout + linted.stderr


def test_every_operation_has_a_name_of_its_own() -> None:
    names = [operation(route)["operationId"] for route in DESCRIBED]
    assert len(set(names)) == len(names)


FIELDS = {
    f"{name}.{field}": described
    for name, schema in SCHEMAS.items()
    for field, described in schema.get("properties", {}).items()
}


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_is_described_with_an_example(name: str) -> None:
    field = FIELDS[name]
    if "$ref" in field:
        return
    assert field["description"]
    if "$ref" not in field.get("items", {}):
        assert field["examples"]


@named(DESCRIBED)
def test_every_parameter_is_described_with_an_example_that_it_takes(route: Route) -> None:
    for parameter in operation(route).get("parameters", []):
        assert parameter["description"]
        for example in parameter["schema"]["examples"]:
            Draft202012Validator(parameter["schema"]).validate(example)


# As the routes do


def test_it_has_every_route_and_no_other() -> None:
    there = {(name, method.upper()) for name, item in DOCUMENT["paths"].items() for method in item}
    assert there == {(path(route), route.method) for route in DESCRIBED}


@named(DESCRIBED)
def test_it_says_who_may(route: Route) -> None:
    described = operation(route)
    if route.access in (ALWAYS, OPEN):
        assert described["security"] == []
        assert "x-roles" not in described
    else:
        assert "security" not in described
        assert described["x-roles"] == (["admin"] if route.access == ADMIN else ["admin", "operator"])
    assert ("403" in described["responses"]) == (route.access == ADMIN or route.more_for_admins)


@named([route for route in DESCRIBED if route.data or route.bare or route.nothing])
def test_it_has_the_fields_of_an_answer(route: Route) -> None:
    content = operation(route)["responses"][str(route.status)]["content"]["application/json"]["schema"]
    schema = content if route.bare else content["properties"]["data"]
    if route.nothing:
        assert schema == {"type": "null"}
        return
    answer = route.paged or route.data or route.bare
    assert answer is not None
    # Of several, the last has the least fields.
    fields = resolved(schema.get("anyOf", [schema])[-1])["properties"]
    assert set(answer().fields) <= set(fields)
    assert set(fields) <= {*answer().fields, "next_cursor"}


@named([route for route in DESCRIBED if route.body or route.may_have])
def test_it_has_the_body_that_works(route: Route) -> None:
    body = operation(route)["requestBody"]
    assert body["required"] == (route.body is not None)
    name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
    fits(name, route.body or route.may_have)
    assert SCHEMAS[name]["additionalProperties"] is False


# As it is served


def test_it_needs_no_token_and_is_the_file(api: Api) -> None:
    answer = api.send("GET", "/openapi.json", None)
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json() == DOCUMENT


def test_who_has_it_is_not_sent_it_again(api: Api) -> None:
    etag = api.send("GET", "/openapi.json", None).headers["ETag"]
    answer = api.send("GET", "/openapi.json", None, headers={"If-None-Match": etag})
    assert (answer.status_code, answer.content) == (304, b"")


@pytest.mark.parametrize(("accepts", "encoding"), [("gzip", "gzip"), ("identity", None), ("gzip;q=0", None)])
def test_it_is_compressed_for_who_takes_that(api: Api, accepts: str, encoding: str | None) -> None:
    answer = api.send("GET", "/openapi.json", None, headers={"Accept-Encoding": accepts}, stream=True)
    assert answer.headers.get("Content-Encoding") == encoding
    raw = answer.raw.read()
    assert json.loads(gzip.decompress(raw) if encoding else raw) == DOCUMENT


# What is sent without being asked for


@pytest.fixture(scope="module")
def session_ids(api: Api) -> Iterator[int]:
    """Sessions to spend, the newest first."""
    return iter([item["id"] for item in api.get("/subscribers", params={"sort": "-id"})["sessions"]])


def test_what_a_webhook_gets_is_in_the_document(api: Api, session_ids: Iterator[int]) -> None:
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    with Receiver() as receiver:
        body = {"url": receiver.url, "events": ["session.down"], "secret": secret}
        id = api.send("POST", "/webhooks", json=body).json()["data"]["id"]
        api.send("POST", f"/webhooks/{id}/test")
        api.send("DELETE", f"/subscribers/{next(session_ids)}")
        wait_for("both", lambda: len(receiver.received) == 2, 10)
        api.send("DELETE", f"/webhooks/{id}")
    for received in receiver.received:
        message = json.loads(received.body)
        described = DOCUMENT["webhooks"][message["event"]]["post"]
        fits(described["requestBody"]["content"]["application/json"]["schema"]["$ref"][21:], message)
        assert all(received.header(parameter["name"]) for parameter in described["parameters"])


def test_an_event_of_the_stream_is_in_the_document(api: Api, session_ids: Iterator[int]) -> None:
    described = DOCUMENT["paths"]["/api/v1/events/subscribers"]["get"]["responses"]["200"]["content"]
    events = described["text/event-stream"]["schema"]["oneOf"]
    by_name = {event["properties"]["event"]["const"]: event["properties"]["data"] for event in events}
    with listen(api) as stream:
        api.send("DELETE", f"/subscribers/{next(session_ids)}")
        (event,) = stream.take(1)
    fits(by_name[event.name]["contentSchema"]["$ref"][21:], event.data)
