"""Reads lines of the gateway's log."""

import json
import re

_WORD = re.compile(r'(?P<name>[a-z_]+)=(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^ "=]+))', re.ASCII)
#: The fields of a request, besides time, level and logger.
REQUEST = ["request_id", "user", "role", "address", "method", "path", "status", "duration_seconds", "bytes"]


def parsed(line: str) -> dict[str, str | None]:
    """Return the fields of a line of key=value. Fails for any other line."""
    fields: dict[str, str | None] = {}
    position = 0
    while position < len(line):
        match = _WORD.match(line, position)
        assert match, line[position:]
        assert match["name"] not in fields
        quoted = match["quoted"]
        held = match["bare"] if quoted is None else json.loads(f'"{quoted}"')
        fields[match["name"]] = None if held == "-" and quoted is None else held
        position = match.end()
        assert line[position : position + 1] in ("", " ")
        position += 1
    return fields


def is_printable_ascii(line: str) -> bool:
    return all(" " <= character <= "~" for character in line)
