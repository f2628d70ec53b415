"""The one shape of every JSON answer."""

from typing import Any

import msgspec
from flask import Response

JSON = "application/json"


def ok(data: Any = None, status: int = 200) -> Response:
    """`{"status":"ok","data":...}`. Records that are bytes already are not parsed again."""
    return bare({"status": "ok", "data": data}, status)


def error(status: int, message: str, **more: Any) -> Response:
    """`{"status":"error","message":...}` and what else the error has to say."""
    return bare({"status": "error", "message": message, **more}, status)


def bare(document: Any, status: int = 200) -> Response:
    """A document without the envelope, where the contract has it so."""
    return encoded(msgspec.json.encode(document), status)


def encoded(body: bytes, status: int = 200) -> Response:
    """JSON that is bytes already."""
    return Response(body, status, mimetype=JSON)
