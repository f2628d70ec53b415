"""Completion of words in a shell, with words from the gateway or from this program, and the command that
prints the completion programs of shells."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from gateway_client.errors import ClientError
from gateway_client.gateway import RemoteGateway
from gateway_contract.contract import Enumeration, Method, get_columns
from gatewayctl import terminal
from gatewayctl.cli import command, get_context
from gatewayctl.texts import escape

#: Number of log records, newest first, whose values are offered for completion.
_MAX_LOG_RECORDS = 1000
#: A user does not wait longer for a completion.
_TIMEOUT_SECONDS = 3.0

#: Function that returns words with their descriptions. Its arguments are a gateway and the incomplete word.
ListWords = Callable[[RemoteGateway, str], Iterable[tuple[str, str]]]


class GatewayWords(click.ParamType[Any]):
    """Parameter type whose values a shell completes with words from the gateway."""

    name = "text"

    def __init__(self, list_words: ListWords) -> None:
        self._list_words = list_words

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            words = self._list_words(RemoteGateway(get_context(ctx), timeout=_TIMEOUT_SECONDS), incomplete)
            # A shell does not escape words, so words with control characters are left out.
            return [
                CompletionItem(word, help=escape(description))
                for word, description in words
                if word.startswith(incomplete) and word.isprintable()
            ]
        except ClientError:
            # An error message would appear in the line that the user types.
            return []


def complete_field(path: str, key: str, name: str, description: str) -> GatewayWords:
    """Return a parameter type that completes values of the field `name`. The words are from the records in
    the list `key` at the path `path` of the API. The field `description` of a record is shown beside the
    word."""

    def list_words(gateway: RemoteGateway, incomplete: str) -> Iterable[tuple[str, str]]:
        return [(str(each[name]), str(each[description] or "")) for each in gateway.get(path)[key]]

    return GatewayWords(list_words)


def complete_logged_value(path: str, key: str, name: str) -> GatewayWords:
    """Return a parameter type that completes values of the field `name`. The words are from the newest
    records of the log in the list `key` at the path `path` of the API."""

    def list_words(gateway: RemoteGateway, incomplete: str) -> Iterable[tuple[str, str]]:
        records = gateway.get(path, limit=_MAX_LOG_RECORDS)[key]
        return [(each, "") for each in sorted({each[name] for each in records if each[name]})]

    return GatewayWords(list_words)


class KnownWords(click.ParamType[str]):
    """Parameter type whose values a shell completes with fixed words. `fields` are the names of the API's
    fields that may be in a value."""

    name = "text"

    def __init__(self, words: Iterable[str], fields: Iterable[str] = ()) -> None:
        self._words = tuple(words)
        self.fields = tuple(fields)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(word) for word in self._words if word.startswith(incomplete)]


def complete_order(fields: Iterable[str]) -> KnownWords:
    """Return a parameter type that completes the order of a list: FIELD, or -FIELD for descending order."""
    names = tuple(fields)
    return KnownWords([*names, *(f"-{name}" for name in names)])


def complete_condition(fields: Mapping[str, Any]) -> KnownWords:
    """Return a parameter type that completes a condition FIELD=VALUE. `fields` maps the names of the fields
    to their Python types."""
    words = []
    for name, kind in fields.items():
        members = list(kind) if isinstance(kind, type) and issubclass(kind, Enumeration) else []
        words += [f"{name}={member}" for member in members] or [f"{name}="]
    return KnownWords(words, fields)


def get_fields(method: type[Method[Any]]) -> dict[str, Any]:
    """Return a map from name to Python type, for the fields by which the list of a method can be filtered and
    sorted."""
    return {name: column.type for name, column in get_columns(method).items()}


#: The variable with which a shell asks for completions.
COMPLETION_VARIABLE = "_GATEWAYCTL_COMPLETE"
#: Name of the file that each shell loads.
COMPLETION_FILES = {"bash": "gatewayctl", "zsh": "_gatewayctl", "fish": "gatewayctl.fish"}


@command()
@click.argument("shell", type=click.Choice(tuple(COMPLETION_FILES)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion for a shell, which the package has installed already.

    In ~/.bashrc: eval "$(gatewayctl completion bash)"
    """
    terminal.write(generate_program(ctx.find_root().command, shell, str(ctx.find_root().info_name)))


def generate_program(root: click.Command, shell: str, name: str = "gatewayctl") -> str:
    """Return the program in the language of a shell that completes the words of a command with this name."""
    complete = get_completion_class(shell)
    if complete is None:
        raise ValueError(f"there is no completion for {shell}")
    return complete(root, {}, name, COMPLETION_VARIABLE).source().strip() + "\n"
