"""A configuration that holds: the document, and what it means."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gateway_api.base.errors import Invalid, Problem
from gateway_api.base.fields import MOST_PROBLEMS, load
from gateway_api.base.redact import redacted
from gateway_api.core.configuration import documents
from gateway_api.core.configuration.schema import Configuration as ConfigurationSchema
from gateway_api.core.configuration.sections import Configuration
from gateway_api.core.configuration.strict import violations

_log = logging.getLogger(__name__)

#: The most bytes of a configuration as JSON.
LARGEST = 1 << 20

_SCHEMA = ConfigurationSchema()


@dataclass(frozen=True)
class RunningConfiguration:
    """`document` is the JSON as stored, `sections` what the schema made of it."""

    document: dict[str, Any]
    sections: Configuration

    @classmethod
    def of(
        cls, document: dict[str, Any], before: "RunningConfiguration | None" = None
    ) -> "RunningConfiguration":
        """A new one. It may break a rule of `strict` where `before` breaks it with the same value: otherwise
        nothing could be changed until that is mended. Raises Invalid, with the dotted path of everything
        that is wrong."""
        sections, problems = None, []
        try:
            sections = load(_SCHEMA, document)
        except Invalid as error:
            problems = list(error.problems)
        known = {} if before is None else violations(before.document, before.sections)
        found = violations(document, sections)
        problems += [problem for violation, problem in found.items() if violation not in known]
        if problems or sections is None:
            raise Invalid(*problems[:MOST_PROBLEMS])
        return cls(document, sections)

    @classmethod
    def stored(cls, document: dict[str, Any]) -> "RunningConfiguration":
        """One that ran before, perhaps with an older version: a rule of `strict` that it breaks is logged.
        Raises Invalid where it doesn't fit the schema."""
        sections = load(_SCHEMA, document)
        for problem in violations(document, sections).values():
            _log.warning("a stored configuration breaks a rule: %s %s", problem.path, problem.message)
        return cls(document, sections)

    @classmethod
    def read(cls, path: Path, users: Path | None = None) -> "RunningConfiguration":
        """The configuration in a file, with the users in another where it names none. Raises Unreadable
        and Invalid."""
        document = documents.read(path, dict[str, Any])
        api = document.get("api")
        if users is not None and isinstance(api, dict) and not api.get("users"):
            api["users"] = documents.read(users, list[Any])
        return cls.of(document)

    def redacted(self) -> dict[str, Any]:
        """The document, fit to be shown."""
        shown: dict[str, Any] = redacted(self.document)
        return shown


def refuse_too_large(document: dict[str, Any]) -> None:
    """Raises Invalid for more than `LARGEST` bytes."""
    if len(msgspec.json.encode(document)) > LARGEST:
        raise Invalid(Problem("", "invalid", f"A configuration has at most {LARGEST} bytes of JSON"))
