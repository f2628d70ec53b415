"""The OpenAPI document: whole, right by the judgement of others, and what the routes do."""

import json
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from gateway_api.web.schemas.requests import (
    CommitSchema,
    DeleteValueSchema,
    OperationSchema,
    RateChangeSchema,
    WebhookRegistrationSchema,
)
from gateway_contract.base.errors import Invalid
from gateway_contract.base.fields import Schema, load
from gateway_contract.base.texts import parse_path
from gateway_contract.events import EVENTS
from tests.support.receivers import Receiver
from tests.support.routes import ADMIN, ALWAYS, OPEN, ROUTES, Route
from tests.support.sse import listen
from tests.support.stack import Api, running_stack, wait_for

FILE = Path(__file__).parents[2] / "etc" / "openapi.json"
DOCUMENT = json.loads(FILE.read_text())

DESCRIBED = [route for route in ROUTES if not route.part_of_a_page]
SCHEMAS = DOCUMENT["components"]["schemas"]


def path(route: Route) -> str:
    return route.path if route.path == "/metrics" else f"/api/v1{route.path}"


def operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][path(route)][route.method.lower()]
    return found


def resolved(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = SCHEMAS[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def fits(name: str, value: Any) -> None:
    """Fails for what isn't as the schema of that name has it."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    Draft202012Validator(schema).validate(value)


# As a document


def test_a_validator_finds_nothing_wrong_and_each_route_is_described() -> None:
    assert list(OpenAPIV31SpecValidator(DOCUMENT).iter_errors()) == []
    names = [operation(route)["operationId"] for route in DESCRIBED]
    assert len(set(names)) == len(names)
    there = {(name, method.upper()) for name, item in DOCUMENT["paths"].items() for method in item}
    assert there == {(path(route), route.method) for route in DESCRIBED}


def test_every_field_is_described_with_an_example() -> None:
    fields = {
        f"{name}.{field}": described
        for name, schema in SCHEMAS.items()
        for field, described in schema.get("properties", {}).items()
        if set(described) != {"$ref"}
    }
    assert len(fields) > 250
    assert [name for name, field in fields.items() if not field.get("description")] == []
    plain = {
        name: field
        for name, field in fields.items()
        if "properties" not in resolved(field.get("items", field))
    }
    assert [name for name, field in plain.items() if not field.get("examples")] == []


#: What is the same in each run of the lab, and where it is: the request, and the list in the response.
OF_THE_LAB = {
    "SessionDetail": ("/subscribers/7", None),
    "SessionSummary": ("/subscribers?search=id:7", "sessions"),
    "SessionQos": ("/qos?session_id=7", "sessions"),
    "Route": ("/routing/routes?session_id=7", "routes"),
    "CgnatSession": ("/cgnat/sessions?id=7", "sessions"),
    "Interface": ("/interfaces?name=trunk0", "interfaces"),
    "Version": ("/system/version", None),
}


def test_the_examples_are_those_of_a_running_gateway(tmp_path: Path) -> None:
    with running_stack(tmp_path, arrivals=0) as (api, _):
        for name, (request, listed) in OF_THE_LAB.items():
            data = api.get(request)
            record = data[listed][0] if listed else data
            examples = {
                field: described["examples"][0]
                for field, described in SCHEMAS[name]["properties"].items()
                # Times and traffic are others each time.
                if described.get("examples") and not re.search("_at$|^bytes|^packets", field)
            }
            assert examples.items() <= record.items(), name


def test_every_parameter_is_described_with_an_example_that_it_takes() -> None:
    parameters = [
        (f"{route} {parameter['name']}", parameter)
        for route in DESCRIBED
        for parameter in operation(route).get("parameters", [])
    ]
    assert len(parameters) > 50
    for name, parameter in parameters:
        assert parameter["description"], name
        if parameter["name"] == "cursor":
            # A cursor comes from a page: an example would be rejected.
            assert "examples" not in parameter["schema"], name
            continue
        assert parameter["schema"]["examples"], name
        for example in parameter["schema"]["examples"]:
            assert Draft202012Validator(parameter["schema"]).is_valid(example), name


# As the routes do


def test_it_has_the_access_of_every_route() -> None:
    for route in DESCRIBED:
        described = operation(route)
        if route.access in (ALWAYS, OPEN):
            assert described["security"] == [], route
            assert "x-roles" not in described, route
        else:
            assert "security" not in described, route
            roles = ["admin"] if route.access == ADMIN else ["admin", "operator"]
            assert described["x-roles"] == roles, route
        forbidden = route.access == ADMIN or route.more_for_admins
        assert ("403" in described["responses"]) == forbidden, route


def test_it_has_the_fields_of_every_response() -> None:
    for route in DESCRIBED:
        answer = route.paged or route.data or route.bare
        if not (answer or route.nothing):
            continue
        content = operation(route)["responses"][str(route.status)]["content"]["application/json"]["schema"]
        schema = content if route.bare else content["properties"]["data"]
        if answer is None:
            assert schema == {"const": None}, route
            continue
        # Of several, the last has the least fields.
        fields = resolved(schema.get("anyOf", [schema])[-1])["properties"]
        assert set(answer.__struct_fields__) <= set(fields), route
        assert set(fields) <= {*answer.__struct_fields__, "next_cursor"}, route


def test_it_has_the_body_that_works() -> None:
    for route in (route for route in DESCRIBED if route.body or route.may_have):
        body = operation(route)["requestBody"]
        assert body["required"] == (route.body is not None), route
        name = body["content"]["application/json"]["schema"]["$ref"].rpartition("/")[2]
        fits(name, route.body or route.may_have)
        assert route.partial or SCHEMAS[name]["additionalProperties"] is False, route


def test_it_has_304_where_that_is_possible() -> None:
    for route in DESCRIBED:
        described = operation(route)
        if "ETag" not in described["responses"][str(route.status)]["headers"]:
            continue
        names = {parameter["name"] for parameter in described.get("parameters", [])}
        # A difference is always sent whole: its tag stands for the configurations alone.
        conditional = route.method == "GET" and not route.path.endswith("/compare")
        assert ("304" in described["responses"]) == conditional, route
        assert ("If-None-Match" in names) == conditional, route


def test_the_stream_and_webhooks_name_the_events_of_both() -> None:
    for path, method in (("/events/subscribers", "get"), ("/webhooks", "post")):
        description = DOCUMENT["paths"][f"/api/v1{path}"][method]["description"]
        for name, event in EVENTS.items():
            assert f"`{name}`" in description
            assert f"`{event.stream_name}`" in description


# What the service rejects, the document rejects: the rules that are written twice

RATES = [
    *("8000", "8.5k", "00.01 mbit", "1.5gbps", "9\tkbit", "400gbit", "10 kibit", "0.3T", "50 Mbit/s"),
    *("64 kbit/S", "9 kibit/s", "1\u00a0m", "0", "0.0", "000.000 gbit", "0k", "1.", ".5", "1e3"),
    *("1 m ", " 1m", "-1", "1MBps", "", "m", "1 tibit", "1,5m", "\u0661m", "1\u2003m", "1m\n", "9k/s"),
]
COMMENTS = [
    *("", "faster", "Grüße, 世界", "x" * 256, "\U0001f680", "e\u0301", "a\u00a0b", "x" * 257),
    *("line\n", "a\tb", "\0", "\x1b[31m", "\x7f", "\x9b", "\xad", "\u061c", "\u200b", "\u2028", "\u202e"),
]
PATHS = [
    *("a", "qos.default_down", "interfaces.trunks.0", 'neighbors."10.255.0.2"', '"a b"', "a-b._c"),
    *("a.999999", "x" * 512, "", ".", "a.", ".a", "a..b", "a b", "1a", "01", "a.1000000", '""', '"a'),
    *('a"b"', '"\n"', "-a", "é", "a\n", "x" * 513, "a/b", '"a"b'),
]
SECRETS = [
    *("A" * 32, "whsec_" + "A" * 32, "A" * 84, "A" * 86 + "==", "A" * 35 + "=", "+/" * 16, "A" * 31),
    *("A" * 28, "A" * 88, "A" * 87 + "=", "-_" * 16, "", "A" * 32 + "\n", "WHSEC_" + "A" * 32),
]
RECEIVERS = [
    *("http://a", "HTTPS://A.b.:8443/x?y=%20z", "http://[::1]:80", "http://a_b:?x", "ftp://a", "http:a"),
    *("http://", "http://a b", "http://a/#b", "http://u@a", "http://a/\\", "http://a..b"),
    *("http://%61/", "http://[v1.x]/", "http://a:b/", "http://a/é", "http://" + "a" * 64, "http://a\n"),
]


def rejected_by_the_service(schema: type[Schema], field: str, text: str) -> bool:
    if schema is DeleteValueSchema:
        # The form of a path is the core's.
        try:
            parse_path(text)
        except ValueError:
            return True
        return False
    return field in schema(partial=True).validate({field: text})


@pytest.mark.parametrize(
    ("schema", "field", "texts"),
    [
        (RateChangeSchema, "rate_down", RATES),
        (CommitSchema, "comment", COMMENTS),
        (DeleteValueSchema, "path", PATHS),
        (WebhookRegistrationSchema, "secret", SECRETS),
        (WebhookRegistrationSchema, "url", RECEIVERS),
    ],
)
def test_the_document_rejects_what_the_service_rejects(
    schema: type[Schema], field: str, texts: list[str]
) -> None:
    validator = Draft202012Validator(SCHEMAS[schema.__name__.removesuffix("Schema")]["properties"][field])
    # Python's $ would let a last line feed pass; that of ECMA-262, which the document is for, does not.
    fitting = {text for text in texts if validator.is_valid(text) and not text.endswith("\n")}
    taken = {text for text in texts if not rejected_by_the_service(schema, field, text)}
    assert fitting == taken
    assert 0 < len(taken) < len(texts)


@pytest.mark.parametrize(
    ("operation", "right"),
    [
        ({"op": "set", "path": "a", "value": 1}, True),
        ({"op": "set", "path": "a", "value": None}, True),
        ({"op": "delete", "path": "a"}, True),
        ({"op": "set", "path": "a"}, False),
        ({"op": "delete", "path": "a", "value": 1}, False),
        ({"op": "move", "path": "a"}, False),
        ({"path": "a", "value": 1}, False),
    ],
)
def test_an_operation_that_sets_has_a_value_and_no_other(operation: dict[str, Any], right: bool) -> None:
    schema = {"$ref": "#/components/schemas/Operation", "components": DOCUMENT["components"]}
    assert Draft202012Validator(schema).is_valid(operation) == right
    with nullcontext() if right else pytest.raises(Invalid):
        load(OperationSchema, operation)


# As it is served


def test_it_needs_no_token_and_is_sent_once(api: Api) -> None:
    answer = api.send("GET", "/openapi.json", None)
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json() == DOCUMENT
    headers = {"If-None-Match": answer.headers["ETag"]}
    answer = api.send("GET", "/openapi.json", None, headers=headers)
    assert (answer.status_code, answer.content) == (304, b"")


# What is sent without being asked for


def test_what_a_webhook_and_a_stream_get_is_in_the_document(api: Api) -> None:
    newest, second, *_ = api.get("/subscribers", params={"sort": "-id", "limit": "2"})["sessions"]
    described = DOCUMENT["paths"]["/api/v1/events/subscribers"]["get"]["responses"]["200"]["content"]
    events = described["text/event-stream"]["schema"]["oneOf"]
    by_name = {event["properties"]["event"]["const"]: event["properties"]["data"] for event in events}
    with listen(api) as stream:
        api.send("DELETE", f"/subscribers/{newest['id']}")
        (event,) = stream.take(1)
    fits(by_name[event.name]["contentSchema"]["$ref"][21:], event.data)
    with Receiver() as receiver:
        body = {"url": receiver.url, "events": ["session.down"], "secret": "whsec_" + "A" * 32}
        id = api.send("POST", "/webhooks", json=body).json()["data"]["id"]
        api.send("POST", f"/webhooks/{id}/test")
        api.send("DELETE", f"/subscribers/{second['id']}")
        wait_for("both", lambda: len(receiver.received) == 2, 10)
        api.send("DELETE", f"/webhooks/{id}")
    for received in receiver.received:
        message = json.loads(received.body)
        described = DOCUMENT["webhooks"][message["event"]]["post"]
        fits(described["requestBody"]["content"]["application/json"]["schema"]["$ref"][21:], message)
        assert all(received.header(parameter["name"]) for parameter in described["parameters"])
