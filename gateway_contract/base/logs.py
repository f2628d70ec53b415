"""Log lines without secrets: one line for each record, as key=value or as JSON.

A line is printable ASCII. Other characters are escaped as in JSON, so no text of a client can end a line,
look like another field, or control a terminal.
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

MASK = "********"

_SECRET_WORDS = ("secret", "password", "password_hash", "token", "key")

#: In any text: hashes of bcrypt, secrets of Standard Webhooks, JSON Web Tokens, and the query of a URL, in
#: which many services expect a secret.
_SECRET_PATTERN = re.compile(
    r"\$2[abxy]?\$\d\d\$[./A-Za-z0-9]{10,}|whsec_[\w+/=-]+|eyJ[\w-]+\.[\w-]+\.[\w-]*"
    r"|(?<=[\w/.:-]\?)[^\s?#\"]+=[^\s#\"]+",
    re.ASCII,
)


def is_secret(key: str) -> bool:
    """Return True if the key is a word for a secret, or ends with such a word, as `radius_secret` and
    `auth-token` do."""
    return key.lower().endswith(_SECRET_WORDS)


def mask_text(text: str) -> str:
    """Return a text in which a mask replaces each hash, secret and token."""
    return _SECRET_PATTERN.sub(MASK, text)


#: Name of the field with a record that the audit log could not take. It is not cut, as it has its own limit.
RECORD = "record"

# journald cuts a line at 48 KiB. Lines of several processes mix in a pipe beyond 4 KiB.
_MAX_TEXT_LENGTH = 2048
_MAX_TRACEBACK_LENGTH = 16_384

#: Before a line for the journal (sd-daemon(3)): the priority of syslog(3).
_PRIORITY_PREFIXES = {
    logging.DEBUG: "<7>",
    logging.INFO: "<6>",
    logging.WARNING: "<4>",
    logging.ERROR: "<3>",
    logging.CRITICAL: "<2>",
}

_PLAIN_WORD_PATTERN = re.compile(r"[A-Za-z0-9_.:/@%+,~-]+", re.ASCII)

#: gunicorn uses this logger for all its lines, not for errors only. The API does so too, below `serving`: the
#: lines have the level that the operator sets.
LOG = logging.getLogger("gunicorn.error")
_SHOWN_LOGGER_NAMES = {LOG.name: "gunicorn"}

Fields = dict[str, Any]


def make_extra(**fields: Any) -> dict[str, Fields]:
    """Return the argument `extra` of a logging call, which adds fields to the message."""
    return {"fields": fields}


class LineFormatter(logging.Formatter):
    """Formatter of log lines. `encode` makes a line from the fields of a record. With `for_journal`, each
    line begins with its priority."""

    def __init__(self, encode: Callable[[Fields], str], *, for_journal: bool = False) -> None:
        super().__init__()
        self._encode = encode
        self._for_journal = for_journal

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        fields: Fields = {
            "time": at.isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z",
            "level": record.levelname.lower(),
            "logger": _SHOWN_LOGGER_NAMES.get(record.name, record.name),
            **getattr(record, "fields", {}),
        }
        if message := record.getMessage():
            fields["message"] = message
        line = {name: value if name == RECORD else _clip(value) for name, value in fields.items()}
        if record.exc_info:
            # The end of a traceback has the error.
            line["traceback"] = _escape_surrogates(self.formatException(record.exc_info))[
                -_MAX_TRACEBACK_LENGTH:
            ]
        priority = _PRIORITY_PREFIXES.get(record.levelno, "") if self._for_journal else ""
        return priority + self._encode(line)


def format_key_value(fields: Fields) -> str:
    """Return a line with `name=value` for each field. The value is `-` for None, and in quotes unless the
    value is a plain word."""
    return " ".join([f"{name}={_format_value(value)}" for name, value in fields.items()])


FORMATS: dict[str, Callable[[Fields], str]] = {
    "keyvalue": format_key_value,
    "json": json.JSONEncoder(separators=(",", ":")).encode,
}


def install(format: str, *loggers: logging.Logger) -> None:
    """Make the root logger and the given `loggers` write lines in `format`, which must be one of `FORMATS`.
    The given loggers must already have handlers. The root logger also logs Python warnings, and exceptions
    that end a thread or the process."""
    root = logging.getLogger()
    if not root.handlers:
        root.addHandler(logging.StreamHandler())
    for logger in (root, *loggers):
        for handler in logger.handlers:
            handler.setFormatter(LineFormatter(FORMATS[format], for_journal=_is_journal(handler)))
    # Without these settings, each record would look up its line of code, its thread and its process, which no
    # formatter here writes.
    # Under gevent, the name of the thread is an object for each greenlet.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.captureWarnings(True)
    sys.excepthook = _log_process_end
    threading.excepthook = _log_thread_end


def _is_journal(handler: logging.Handler) -> bool:
    # A child inherits JOURNAL_STREAM even if its output goes elsewhere (systemd.exec(5)).
    stream: Any = getattr(handler, "stream", None)
    try:
        status = os.fstat(stream.fileno())
    except (AttributeError, OSError, ValueError):
        # Closed, or not a file.
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def _log_process_end(
    error_type: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if not issubclass(error_type, KeyboardInterrupt):
        logging.critical("the process ends after an exception", exc_info=(error_type, error, traceback))


def _log_thread_end(arguments: threading.ExceptHookArgs) -> None:
    if not issubclass(arguments.exc_type, SystemExit):
        name = arguments.thread.name if arguments.thread else "a thread"
        logging.error("%s ended after an exception", name, exc_info=arguments.exc_value)


def _clip(value: Any) -> Any:
    if not isinstance(value, str) or (value.isascii() and len(value) <= _MAX_TEXT_LENGTH):
        return value
    return _escape_surrogates(value if len(value) <= _MAX_TEXT_LENGTH else f"{value[:_MAX_TEXT_LENGTH]}...")


def _escape_surrogates(text: str) -> str:
    """Return a text with its lone surrogates escaped, because most JSON parsers reject lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def _format_value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.6f}"
    text = str(value)
    return text if _PLAIN_WORD_PATTERN.fullmatch(text) and text != "-" else json.dumps(text)
