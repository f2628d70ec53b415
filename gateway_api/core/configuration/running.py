"""A configuration that holds: the document, and what it means."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway_api.core.configuration import documents
from gateway_api.core.configuration.schema import Configuration as ConfigurationSchema
from gateway_api.core.configuration.sections import Configuration
from gateway_api.redact import redacted
from gateway_api.validation import load

_SCHEMA = ConfigurationSchema()


@dataclass(frozen=True)
class RunningConfiguration:
    """`document` is the JSON as stored, `sections` what the schema made of it."""

    document: dict[str, Any]
    sections: Configuration

    @classmethod
    def of(cls, document: dict[str, Any]) -> "RunningConfiguration":
        """Raises Invalid, with the dotted path of everything that is wrong."""
        return cls(document, load(_SCHEMA, document))

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
