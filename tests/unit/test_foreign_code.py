"""Code of other projects that may change without notice, as it was when ours was written to fit it."""

import hashlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from gevent.monkey._util import _notify_patch
from gunicorn.http import get_parser, wsgi
from gunicorn.http.body import LengthReader
from gunicorn.http.message import HeaderPolicy
from gunicorn.http.parser import Parser
from marshmallow import Schema, fields
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection

from gateway_api.base.fields import TextField
from gateway_api.serving import worker

#: gunicorn's, which ours replaces.
_Response = wsgi.Response.__mro__[1]

#: Who reads it, and the digests of what was read.
READ: dict[str, list[tuple[Callable[..., Any], str]]] = {
    "gateway_api/hub/sender.py": [
        (HTTPConnection._new_conn, "83e6a5dd7db98a0a"),
        (HTTPConnection.host.fget, "f4a39fd3f30ea1fe"),
        (HTTPConnection.connect, "b70c63e7308857b1"),
        (HTTPSConnection.connect, "2a2e1795406d7f38"),
        (HTTPAdapter.get_connection_with_tls_context, "cf749a3be9e291a6"),
        (HTTPAdapter.cert_verify, "d5b2e7394e8c45f2"),
        (HTTPAdapter.request_url, "fdf34500937f1ffb"),
        (HTTPAdapter.init_poolmanager, "dcc10b3b4da2db73"),
    ],
    "gateway_api/serving/worker.py": [
        (_notify_patch, "830b2bc1ca3c3d77"),
        (_Response.default_headers, "cb490cea5d6f5408"),
        (worker._environ_of.__wrapped__, "942494574f2cdd6d"),
        (HeaderPolicy._peer_is_trusted_proxy, "4d98e07d3c7a90fe"),
        (Parser.finish_body, "54c5d0d28c2626ea"),
        (Parser.__next__, "b8536520e95854d6"),
        (get_parser, "b7d8dcde91e20db4"),
        (LengthReader.read, "be99a0aa587fc555"),
        (wsgi.WSGIErrorsWrapper, "b8dac8d043f639d8"),
    ],
    "gateway_api/base/fields.py": [
        (fields.Field.__init__, "2e3accfc4ae337bb"),
        (fields.Field.make_error, "64caf6716bf3a105"),
    ],
}


@pytest.mark.parametrize("reader", READ)
def test_foreign_code_is_as_it_was_read(reader: str) -> None:
    for function, digest in READ[reader]:
        found = hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:16]
        assert found == digest, f"{function.__qualname__} has changed: read it and {reader} again"


def test_the_messages_of_all_fields_are_ours() -> None:
    schema = Schema.from_dict({"one": fields.Field(required=True), "two": TextField()})()
    assert schema.validate({"two": None}) == {"one": ["is required"], "two": ["must not be null"]}
