"""Contexts: the gateways that the user has logged in to, each with a URL, CA certificate, username and token.

Only the owner may read the file of the contexts (mode 0600). A token is sent only to the URL that issued it.
"""

import fcntl
import json
import os
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gateway_client.errors import BadContext
from gateway_contract.base import durable
from gateway_contract.base.texts import format_local

DEFAULT_URL = "https://localhost:8443"
#: Names of this machine.
LOCAL_HOSTS = {"localhost", "127.0.0.1", "::1"}

#: Header, claims and signature of a JSON Web Token (RFC 7515 section 7.1).
_TOKEN_PATTERN = re.compile(r"[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
#: End of the year 9998 in epoch seconds. A later time cannot be shown in every time zone.
_MAX_EPOCH_SECONDS = 253_370_764_799
_LABEL_PATTERN = re.compile("[A-Za-z0-9_-]{1,64}", re.ASCII)


@dataclass(frozen=True)
class Context:
    """Gateway that the user has logged in to. `ca` is the path of a PEM file; None means the CA certificates
    of the system. `labels` are sorted words by which the user selects several gateways."""

    name: str
    url: str
    ca: str | None = None
    username: str | None = None
    token: str | None = None
    labels: tuple[str, ...] = ()

    def describe_token_problem(self, now: float) -> str | None:
        """Return a sentence about why the gateway refuses the token. Return None if the content of the token
        shows no reason: then the token may have been revoked. `now` is epoch seconds."""
        if not self.token:
            return "there is no token: nobody is logged in"
        if not is_token(self.token):
            return "the token is not a JSON Web Token (RFC 7519)"
        # RFC 7519 section 4.1.4.
        end = _parse_claims(self.token).get("exp")
        if end is None:
            return "the token does not say when it expires"
        if not isinstance(end, int | float) or not 0 <= end <= _MAX_EPOCH_SECONDS:
            return "the token does not expire at a time: its exp is not one"
        return f"the token expired at {format_local(end)}" if end <= now else None


@dataclass(frozen=True)
class Contexts:
    """All contexts by name, and the name of the current context."""

    current: str | None = None
    by_name: Mapping[str, Context] = field(default_factory=dict)

    def choose(self, name: str | None, environment: Mapping[str, str]) -> Context:
        """Return the context with the given name. If the name is None, return the context of the URL in
        GATEWAY_URL; without this variable, the current context; without a current context, the context of the
        default URL. Raises BadContext if the name is unknown or the URL is invalid."""
        if name is not None:
            return self.get(name)
        if url := environment.get("GATEWAY_URL"):
            return self.find(url, environment.get("GATEWAY_CA"))
        if self.current is not None:
            return self.get(self.current)
        return self.find(DEFAULT_URL, environment.get("GATEWAY_CA"))

    def get(self, name: str) -> Context:
        """Return the context with the given name. Raises BadContext if the name is unknown."""
        if name not in self.by_name:
            names = ", ".join(self.by_name) or "none yet"
            raise BadContext(f"there is no context {name!r}; known contexts: {names}")
        return self.by_name[name]

    def find(self, url: str, ca: str | None, name: str | None = None) -> Context:
        """Return a context for a URL. If `name` is given, return the context of this name if it has this URL,
        and otherwise a new context without a token. If `name` is None, return the current context if it has
        this URL, otherwise another context with this URL, and otherwise a new context called HOST:PORT. `ca`
        replaces the CA certificate of the context. Raises BadContext if the URL is invalid."""
        checked_url = check_url(url)
        new = Context(name or urlsplit(checked_url).netloc, checked_url, ca)
        names = [name] if name else [self.current or "", new.name, *self.by_name]
        contexts = (self.by_name[each] for each in names if each in self.by_name)
        context = next((each for each in contexts if each.url == checked_url), new)
        return replace(context, ca=ca or context.ca)

    def find_by_label(self, label: str) -> list[Context]:
        """Return the contexts that have a label. Raises BadContext if no context has the label."""
        found = [context for context in self.by_name.values() if label in context.labels]
        if not found:
            names = ", ".join(self.list_labels()) or "none yet"
            raise BadContext(f"no context has the label {label!r}; known labels: {names}")
        return found

    def list_labels(self) -> list[str]:
        """Return the labels of all contexts, each label once, in alphabetical order."""
        return sorted({label for context in self.by_name.values() for label in context.labels})

    def add(self, context: Context, *, make_current: bool = False) -> "Contexts":
        """Return a copy that also contains the given context. With `make_current`, or if there is no current
        context, the given context becomes the current context. If a context of the same name exists, its
        labels stay: another process may have changed the labels meanwhile."""
        name = context.name if make_current or self.current is None else self.current
        if context.name in self.by_name:
            context = replace(context, labels=self.by_name[context.name].labels)
        return Contexts(name, {**self.by_name, context.name: context})

    def change_labels(self, name: str, *, add: Iterable[str] = (), remove: Iterable[str] = ()) -> "Contexts":
        """Return a copy in which the context of the given name also has the labels `add`, and has none of
        the labels `remove`. Raises BadContext if the name is unknown."""
        context = self.get(name)
        labels = {*context.labels, *add}.difference(remove)
        return Contexts(self.current, {**self.by_name, name: replace(context, labels=tuple(sorted(labels)))})

    def remove(self, name: str) -> "Contexts":
        """Return a copy without the context of the given name. Raises BadContext if the name is unknown."""
        self.get(name)
        remaining_contexts = {key: context for key, context in self.by_name.items() if key != name}
        return Contexts(None if self.current == name else self.current, remaining_contexts)


def is_token(text: str) -> bool:
    """Return True if a text has the form of a JSON Web Token, so that the text is safe in a header."""
    return _TOKEN_PATTERN.fullmatch(text) is not None and isinstance(_parse_claims(text), dict)


def is_label(text: str) -> bool:
    """Return True if a text can be a label: 1 to 64 letters, digits, `-` or `_`."""
    return _LABEL_PATTERN.fullmatch(text) is not None


def _parse_claims(token: str) -> Any:
    try:
        return json.loads(urlsafe_b64decode(f"{token.split('.')[1]}=="))
    except (ValueError, RecursionError):
        return None


def find_own_certificate(url: str, environment: Mapping[str, str]) -> str | None:
    """Return the path of the certificate of this machine's API if the URL refers to this machine and the
    certificate is self-signed. Otherwise return None: then the CA certificates of the system are used."""
    if urlsplit(url).hostname not in LOCAL_HOSTS:
        return None
    # Imported here, because no other URL needs them.
    from gateway_contract.base.certificate import is_self_signed
    from gateway_contract.base.variables import value

    path = Path(value(environment, "GATEWAY_API_CERTIFICATE"))
    return str(path) if os.access(path, os.R_OK) and is_self_signed(path) else None


def check_url(url: str) -> str:
    """Return the URL of a gateway without a trailing slash. Raises BadContext if the URL is invalid."""
    try:
        parts = urlsplit(url)
        # requests encodes the host name in the same way, but lets the error through.
        (parts.hostname or "").encode("idna")
    except ValueError:
        parts = urlsplit("")
    if parts.scheme != "https" or not parts.netloc or "@" in parts.netloc:
        raise BadContext(f"the URL of a gateway must be https://HOST:PORT, not {url!r}")
    return url.rstrip("/")


class ContextsFile:
    """File that stores the contexts of the user."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        home = environment.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
        self.path = Path(home) / "gatewayctl" / "contexts.json"

    def read(self) -> Contexts:
        """Return the contexts in the file, or no contexts if there is no file. Raises BadContext if the file
        cannot be read or is invalid."""
        try:
            document = json.loads(self.path.read_bytes())
            contexts = {name: _parse_context(name, fields) for name, fields in document["contexts"].items()}
            return Contexts(document["current"], contexts)
        except FileNotFoundError:
            return Contexts()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadContext(f"cannot read the contexts in {self.path}: {error}") from error

    def edit(self, change: Callable[[Contexts], Contexts]) -> None:
        """Call `change` with the contexts in the file, and replace the contexts by the return value, under a
        lock against other processes. Raises BadContext if the file cannot be read or written."""
        try:
            durable.make_folder(self.path.parent)
            with (self.path.parent / ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                contexts = change(self.read())
                by_name = {name: asdict(context) for name, context in contexts.by_name.items()}
                for fields in by_name.values():
                    del fields["name"]
                    # An earlier version does not know the field.
                    if not fields["labels"]:
                        del fields["labels"]
                document = {"current": contexts.current, "contexts": by_name}
                durable.replace(self.path, json.dumps(document, indent=2).encode() + b"\n")
        except OSError as error:
            raise BadContext(f"cannot write the contexts to {self.path}: {error}") from error


def _parse_context(name: str, fields: Mapping[str, Any]) -> Context:
    """Return the context `name` from the fields in the file. Raises TypeError if a field has another type
    than in Context."""
    labels = fields.get("labels", [])
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise TypeError(f"labels of {name} is not a list of texts")
    for key, value in fields.items():
        if key != "labels" and not isinstance(value, str) and (value is not None or key == "url"):
            raise TypeError(f"{key} of {name} is not a text")
    return Context(name, **{**fields, "labels": tuple(labels)})
