"""Contexts: the gateways that the user knows, each with its URL, CA certificate, user and token.

The file belongs to its owner alone (mode 0600). A token is sent only to the URL that issued it.
"""

import fcntl
import json
import os
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gateway_contract.base import durable
from gateway_contract.base.texts import format_local
from gatewayctl.client.errors import BadContext

DEFAULT_URL = "https://localhost:8443"
_THIS_MACHINE = {"localhost", "127.0.0.1", "::1"}

#: Header, claims and signature (RFC 7515 section 7.1).
_TOKEN = re.compile(r"[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
#: The end of the year 9998, epoch seconds: later times are none in every time zone.
_LAST_TIME = 253_370_764_799


@dataclass(frozen=True)
class Context:
    """A gateway. `ca` is a file in PEM, None for the CA certificates of the system."""

    name: str
    url: str
    ca: str | None = None
    username: str | None = None
    token: str | None = None

    def token_problem(self, now: float) -> str | None:
        """Why the gateway refuses the token, as a sentence. None if its content gives no reason: a revoked
        one is not known here. `now` is epoch seconds."""
        if not self.token:
            return "there is no token: nobody is logged in"
        if not is_token(self.token):
            return "the token is not a JSON Web Token (RFC 7519)"
        end = _expiry(self.token)
        if end is None:
            return "the token does not say when it expires"
        if not isinstance(end, int | float) or not 0 <= end <= _LAST_TIME:
            return "the token does not expire at a time: its exp is not one"
        return f"the token expired at {format_local(end)}" if end <= now else None


@dataclass(frozen=True)
class Contexts:
    """All contexts by name, and the name of the current one."""

    current: str | None = None
    known: Mapping[str, Context] = field(default_factory=dict)

    def chosen(self, name: str | None, environment: Mapping[str, str]) -> Context:
        """Return the context of that name; else that of GATEWAY_URL; else the current one. Raises
        BadContext."""
        if name is not None:
            return self.named(name)
        if url := environment.get("GATEWAY_URL"):
            return self.at(url, environment.get("GATEWAY_CA"))
        if self.current is not None:
            return self.named(self.current)
        return self.at(DEFAULT_URL, environment.get("GATEWAY_CA"))

    def named(self, name: str) -> Context:
        """Raises BadContext."""
        if name not in self.known:
            names = ", ".join(self.known) or "none yet"
            raise BadContext(f"there is no context {name!r}; known contexts: {names}")
        return self.known[name]

    def at(self, url: str, ca: str | None, name: str | None = None) -> Context:
        """Return the context of a URL, by preference the current one; or a new one, whose name is by default
        host and port. With a name, the context of that name, without a token if it had another URL. Raises
        BadContext."""
        checked = checked_url(url)
        new = Context(name or urlsplit(checked).netloc, checked, ca)
        names = [name] if name else [self.current or "", new.name, *self.known]
        held = (self.known[each] for each in names if each in self.known)
        found = next((each for each in held if each.url == checked), new)
        return replace(found, ca=ca or found.ca)

    def with_one(self, context: Context, *, current: bool = False) -> "Contexts":
        name = context.name if current or self.current is None else self.current
        return Contexts(name, {**self.known, context.name: context})

    def without(self, name: str) -> "Contexts":
        """Raises BadContext."""
        self.named(name)
        left = {key: context for key, context in self.known.items() if key != name}
        return Contexts(None if self.current == name else self.current, left)


def is_token(text: str) -> bool:
    """Return whether it has the form of a JSON Web Token, so that it can stand in a header."""
    return _TOKEN.fullmatch(text) is not None and isinstance(_claims(text), dict)


def _claims(token: str) -> Any:
    try:
        return json.loads(urlsafe_b64decode(f"{token.split('.')[1]}=="))
    except (ValueError, RecursionError):
        return None


def _expiry(token: str) -> Any:
    """Return the claim `exp` of a token (RFC 7519 section 4.1.4), None without one."""
    return _claims(token).get("exp")


def own_certificate(url: str, environment: Mapping[str, str]) -> str | None:
    """Return the certificate of the API of this machine, if the URL is of this machine and the certificate is
    self-signed. None for another one: the CA certificates of the system are for that."""
    if urlsplit(url).hostname not in _THIS_MACHINE:
        return None
    # Here, as no other URL needs them.
    from gateway_contract.base.certificate import is_self_signed
    from gateway_contract.base.variables import value

    path = Path(value(environment, "GATEWAY_API_CERTIFICATE"))
    return str(path) if os.access(path, os.R_OK) and is_self_signed(path) else None


def checked_url(url: str) -> str:
    """Without a slash at its end. Raises BadContext."""
    try:
        parts = urlsplit(url)
        # requests encodes the name so, and lets the error through.
        (parts.hostname or "").encode("idna")
    except ValueError:
        parts = urlsplit("")
    if parts.scheme != "https" or not parts.netloc or "@" in parts.netloc:
        raise BadContext(f"the URL of a gateway must be https://HOST:PORT, not {url!r}")
    return url.rstrip("/")


class ContextsFile:
    """The file of the contexts."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        home = environment.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
        self.path = Path(home) / "gatewayctl" / "contexts.json"

    def read(self) -> Contexts:
        """Raises BadContext."""
        try:
            held = json.loads(self.path.read_bytes())
            known = {name: _context(name, about) for name, about in held["contexts"].items()}
            return Contexts(held["current"], known)
        except FileNotFoundError:
            return Contexts()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise BadContext(f"cannot read the contexts in {self.path}: {error}") from error

    @contextmanager
    def editing(self) -> Iterator["Edited"]:
        """The contexts, to be replaced; another process waits meanwhile. Raises BadContext."""
        try:
            durable.make_folder(self.path.parent)
            with (self.path.parent / ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                edited = Edited(self.read())
                yield edited
                durable.replace(self.path, _document(edited.contexts))
        except OSError as error:
            raise BadContext(f"cannot write the contexts to {self.path}: {error}") from error

    def keep(self, context: Context, *, current: bool = False) -> None:
        """Raises BadContext."""
        with self.editing() as edited:
            edited.contexts = edited.contexts.with_one(context, current=current)


@dataclass
class Edited:
    contexts: Contexts


def _context(name: str, about: Mapping[str, Any]) -> Context:
    """Raises TypeError."""
    for key, value in about.items():
        if not isinstance(value, str) and (value is not None or key == "url"):
            raise TypeError(f"{key} of {name} is not a text")
    return Context(name, **about)


def _document(contexts: Contexts) -> bytes:
    known = {
        name: {key: value for key, value in asdict(context).items() if key != "name"}
        for name, context in contexts.known.items()
    }
    return json.dumps({"current": contexts.current, "contexts": known}, indent=2).encode() + b"\n"
