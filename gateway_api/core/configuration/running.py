"""The running configuration: the document on disk, and what it means."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gateway_api.core.configuration.schema import Configuration as ConfigurationSchema
from gateway_api.core.configuration.sections import Configuration
from gateway_api.errors import GatewayApiError
from gateway_api.redact import redacted
from gateway_api.validation import load


class Unreadable(GatewayApiError):
    """There is no configuration at the path, or the file holds no JSON object."""


@dataclass(frozen=True)
class RunningConfiguration:
    """`document` is the JSON as stored, `sections` what the schema made of it."""

    document: dict[str, Any]
    sections: Configuration

    @classmethod
    def of(cls, document: dict[str, Any]) -> "RunningConfiguration":
        """Raises Invalid, with the dotted path of everything that is wrong."""
        return cls(document, load(ConfigurationSchema(), document))

    @classmethod
    def read(cls, path: Path) -> "RunningConfiguration":
        """The configuration in a file. Raises Unreadable and Invalid."""
        try:
            document = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Unreadable(f"cannot read the configuration in {path}: {error}") from error
        return cls.of(document)

    @property
    def etag(self) -> str:
        """A hash of the document, secrets included: a changed password is a change."""
        canonical = json.dumps(self.document, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:32]

    def redacted(self) -> dict[str, Any]:
        """The document, fit to be shown."""
        shown: dict[str, Any] = redacted(self.document)
        return shown
