"""Log lines: one a record, whatever is in it, as key=value or as JSON, and without secrets.

A line is printable ASCII. Other characters are escaped as in JSON, so that nothing that a client sends can
end a line, look like another field, or control a terminal.
"""

import json
import logging
import os
import re
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Any
from urllib.parse import quote

MASK = "********"

_SECRET = ("secret", "password", "password_hash", "token", "key")

#: Hashes of bcrypt, secrets of Standard Webhooks, JSON Web Tokens, wherever they were put; and the query of a
#: URL, which is where many services want to be given one.
_KNOWN = re.compile(
    r"\$2[abxy]?\$\d\d\$[./A-Za-z0-9]{10,}|whsec_[\w+/=-]+|eyJ[\w-]+\.[\w-]+\.[\w-]*"
    r"|(?<=[\w/.:-]\?)[^\s?#\"]+=[^\s#\"]+",
    re.ASCII,
)


def is_secret(key: str) -> bool:
    """True when the key is, or ends in, a word for a secret: `radius_secret`, `auth-token`."""
    return key.lower().endswith(_SECRET)


def redacted(value: Any) -> Any:
    """A copy of a JSON value with `MASK` for every value under a secret key, unless it is null."""
    if isinstance(value, dict):
        return {
            key: MASK if is_secret(key) and held is not None else redacted(held)
            for key, held in value.items()
        }
    if isinstance(value, list):
        return [redacted(item) for item in value]
    return value


def masked_text(text: str) -> str:
    """Without what looks like a hash, a secret or a token."""
    return _KNOWN.sub(MASK, text)


#: Keys of the WSGI environ: user name and role of the caller, once they are known.
USER, ROLE = "gateway_api.user", "gateway_api.role"

#: The field of a record of the audit log that has no other place: it is whole, and bounded by itself.
RECORD = "record"

# journald cuts a line at 48 KiB, and several processes write whole only what fits into a pipe, 4 KiB.
_LONGEST_TEXT = 2048
_LONGEST_TRACEBACK = 16_384

#: What sd-daemon(3) has at the beginning of a line: the priorities of syslog(3).
_PRIORITIES = {
    logging.DEBUG: "<7>",
    logging.INFO: "<6>",
    logging.WARNING: "<4>",
    logging.ERROR: "<3>",
    logging.CRITICAL: "<2>",
}

#: Paths that monitoring polls, with or without a token. A successful poll is logged at debug.
_WATCHED = ("/api/v1/health", "/api/v1/system/health", "/api/v1/system/status", "/metrics")
#: The header with which the page marks a poll. Requests for the paths below are logged all the same: any
#: client may send the header.
_POLL = "HTTP_X_POLL"
_NEVER_POLLED = ("/api/v1/subscribers", "/api/v1/system/config", "/api/v1/audit")

_BARE = re.compile(r"[A-Za-z0-9_.:/@%+,~-]+", re.ASCII)

#: What gunicorn calls its loggers, where a word would make people look for an error.
_NAMES = {"gunicorn.error": "gunicorn"}

Fields = dict[str, Any]


def extra(**fields: Any) -> dict[str, Fields]:
    """What a logging call takes as `extra`, for fields besides its message."""
    return {"fields": fields}


def of_request(
    environ: dict[str, Any], *, request_id: str | None, status: int, size: int, seconds: float | None
) -> Fields:
    """The fields of a request's line. Without its query, in which anything may have been sent."""
    path = environ.get("PATH_INFO")
    return {
        "request_id": request_id,
        "user": environ.get(USER),
        "role": environ.get(ROLE),
        "address": environ.get("REMOTE_ADDR"),
        "method": environ.get("REQUEST_METHOD"),
        # As bytes that were sent, which WSGI hands on as Latin-1.
        "path": None if path is None else quote(masked_text(path), safe="/:@*", encoding="latin-1"),
        "status": status,
        "duration_seconds": seconds,
        "bytes": size,
    }


def level_of_request(environ: dict[str, Any], status: int) -> int:
    """Of a request's line: debug for a poll that went well, or the log would be full of them."""
    looks = environ.get("REQUEST_METHOD") in ("GET", "HEAD") and (status < 300 or status == 304)
    path = environ.get("PATH_INFO")
    polls = path in _WATCHED or (_POLL in environ and path not in _NEVER_POLLED)
    return logging.DEBUG if looks and polls else logging.INFO


class LineFormatter(logging.Formatter):
    """`encode` makes a line of fields; `for_journal` has it begin with its priority."""

    def __init__(self, encode: Callable[[Fields], str], *, for_journal: bool = False) -> None:
        super().__init__()
        self._encode = encode
        self._for_journal = for_journal

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields: Fields = {
            "time": at.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": _NAMES.get(record.name, record.name),
            **getattr(record, "fields", {}),
        }
        if message := record.getMessage():
            fields["message"] = message
        line = {name: held if name == RECORD else _clipped(held) for name, held in fields.items()}
        if record.exc_info:
            # The end says what happened.
            line["traceback"] = _whole(self.formatException(record.exc_info))[-_LONGEST_TRACEBACK:]
        priority = _PRIORITIES.get(record.levelno, "") if self._for_journal else ""
        return priority + self._encode(line)


def key_value(fields: Fields) -> str:
    """`name=value` of each field; `-` for None, and quotes around what isn't a plain word."""
    return " ".join(f"{name}={_word(held)}" for name, held in fields.items())


FORMATS: dict[str, Callable[[Fields], str]] = {
    "keyvalue": key_value,
    "json": json.JSONEncoder(separators=(",", ":")).encode,
}


def install(format: str, *loggers: logging.Logger) -> None:
    """Has these loggers, which have handlers, write lines in one of `FORMATS`; and everything else that this
    process says: other loggers, warnings, and what ends a thread or the process. A line for systemd's journal
    begins with its priority."""
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(logging.StreamHandler())
    for logger in (root, *loggers):
        for handler in logger.handlers:
            handler.setFormatter(LineFormatter(FORMATS[format], for_journal=_is_journal(handler)))
    logging.captureWarnings(True)
    sys.excepthook = _ends_the_process
    threading.excepthook = _ends_a_thread


def _is_journal(handler: logging.Handler) -> bool:
    """Whether it writes to the journal: a variable that a child inherits doesn't say so of its own output
    (systemd.exec(5), JOURNAL_STREAM)."""
    stream = getattr(handler, "stream", None)
    try:
        there = os.fstat(stream.fileno()) if stream is not None else None
    except (OSError, ValueError):
        # Closed, or no file at all.
        return False
    return there is not None and os.environ.get("JOURNAL_STREAM") == f"{there.st_dev}:{there.st_ino}"


def _ends_the_process(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    logging.getLogger().critical("the process ends", exc_info=(kind, error, trace))


def _ends_a_thread(what: threading.ExceptHookArgs) -> None:
    if what.exc_value is None or issubclass(what.exc_type, SystemExit):
        return
    name = what.thread.name if what.thread else "a thread"
    logging.getLogger().error(
        "%s has ended", name, exc_info=(what.exc_type, what.exc_value, what.exc_traceback)
    )


def _clipped(held: Any) -> Any:
    if not isinstance(held, str):
        return held
    return _whole(held if len(held) <= _LONGEST_TEXT else f"{held[:_LONGEST_TEXT]}...")


def _whole(text: str) -> str:
    """Without lone surrogates: they are not text, and most JSON parsers reject them."""
    return text.encode("utf-8", "backslashreplace").decode()


def _word(held: Any) -> str:
    if held is None:
        return "-"
    if isinstance(held, float):
        return f"{held:.6f}"
    text = str(held)
    return text if _BARE.fullmatch(text) and text != "-" else json.dumps(text)
