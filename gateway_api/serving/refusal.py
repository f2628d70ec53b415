"""What is answered to a request that never gets to the application."""

import json

from gunicorn.http import errors

from gateway_api.serving.headers import guards

_STATUS_OF = (
    (errors.LimitRequestLine, "414 URI Too Long"),
    (errors.LimitRequestHeaders, "431 Request Header Fields Too Large"),
    (errors.UnsupportedTransferCoding, "501 Not Implemented"),
    (errors.ExpectationFailed, "417 Expectation Failed"),
    (errors.ParseException, "400 Bad Request"),
)
#: gunicorn_h1c before 0.6.12 tells this from other wrong headers by its text alone.
_UNKNOWN_CODING = "Unsupported Transfer-Encoding"


def status_of(error: BaseException) -> str | None:
    """Code and phrase of a request that can't be parsed; None when the fault is ours."""
    if isinstance(error, errors.InvalidHeader) and error.hdr == _UNKNOWN_CODING:
        return "501 Not Implemented"
    return next((status for kind, status in _STATUS_OF if isinstance(error, kind)), None)


def refusal(status: str, request_id: str, *, tls: bool) -> tuple[str, str]:
    """Head and body of the last answer on a connection."""
    body = json.dumps({"status": "error", "message": status.partition(" ")[2]}, separators=(",", ":"))
    headers = {
        "Connection": "close",
        "Content-Type": "application/json",
        "X-Request-ID": request_id,
        **guards(tls=tls),
        "Content-Length": str(len(body)),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n", body
