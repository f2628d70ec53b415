"""Words that a shell completes, from the gateway or known in advance, and the command that prints the
completion programs of shells."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem, get_completion_class

from gateway_contract.contract import Enumeration, Method, columns_of
from gatewayctl import terminal
from gatewayctl.cli import command, get_context
from gatewayctl.client.gateway import RemoteGateway
from gatewayctl.errors import ClientError
from gatewayctl.texts import escape

#: Number of the newest records of a log whose words are offered.
_MAX_LOG_RECORDS = 1000
#: A user does not wait longer for words.
_TIMEOUT_SECONDS = 3.0

#: Function that returns words with their descriptions. Its arguments are a gateway and the incomplete word.
ListWords = Callable[[RemoteGateway, str], Iterable[tuple[str, str]]]


class GatewayWords(click.ParamType[Any]):
    """Type of a text that a shell completes with words from the gateway."""

    name = "text"

    def __init__(self, list_words: ListWords) -> None:
        self._list_words = list_words

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        try:
            words = self._list_words(RemoteGateway(get_context(ctx), timeout=_TIMEOUT_SECONDS), incomplete)
            # A shell shows words as they are, so words with control characters are left out.
            return [
                CompletionItem(word, help=escape(description))
                for word, description in words
                if word.startswith(incomplete) and word.isprintable()
            ]
        except ClientError:
            # The error would stand in the line that the user types.
            return []


def complete_field(path: str, key: str, name: str, description: str) -> GatewayWords:
    """Return the type of a text that is the field `name` of a record in the list `key` at `path`. Another
    field describes the record."""

    def list_words(gateway: RemoteGateway, incomplete: str) -> Iterable[tuple[str, str]]:
        return [(str(each[name]), str(each[description] or "")) for each in gateway.get(path)[key]]

    return GatewayWords(list_words)


def complete_logged_value(path: str, key: str, name: str) -> GatewayWords:
    """Return the type of a text that is a value of the field `name` in the newest records of a log."""

    def list_words(gateway: RemoteGateway, incomplete: str) -> Iterable[tuple[str, str]]:
        records = gateway.get(path, limit=_MAX_LOG_RECORDS)[key]
        return [(each, "") for each in sorted({each[name] for each in records if each[name]})]

    return GatewayWords(list_words)


class KnownWords(click.ParamType[str]):
    """Type of a text that a shell completes with words that are known without the gateway. `fields` are the
    fields of the API that the text may name."""

    name = "text"

    def __init__(self, words: Iterable[str], fields: Iterable[str] = ()) -> None:
        self._words = tuple(words)
        self.fields = tuple(fields)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(word) for word in self._words if word.startswith(incomplete)]


def complete_order(fields: Iterable[str]) -> KnownWords:
    """Return the type of a field by which a list is sorted: FIELD, or -FIELD for descending order."""
    names = tuple(fields)
    return KnownWords([*names, *(f"-{name}" for name in names)])


def complete_condition(fields: Mapping[str, Any]) -> KnownWords:
    """Return the type of a condition FIELD=VALUE. `fields` are types by name."""
    words = []
    for name, kind in fields.items():
        members = list(kind) if isinstance(kind, type) and issubclass(kind, Enumeration) else []
        words += [f"{name}={member}" for member in members] or [f"{name}="]
    return KnownWords(words, fields)


def get_fields(method: type[Method[Any]]) -> dict[str, Any]:
    """Return the types of the fields that filter and sort the list of a method, by name."""
    return {name: column.type for name, column in columns_of(method).items()}


#: The variable with which a shell asks for completions.
_COMPLETION_VARIABLE = "_GATEWAYCTL_COMPLETE"
#: Name of the file that each shell loads.
COMPLETION_FILES = {"bash": "gatewayctl", "zsh": "_gatewayctl", "fish": "gatewayctl.fish"}


@command()
@click.argument("shell", type=click.Choice(tuple(COMPLETION_FILES)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion for a shell, which the package has installed already.

    In ~/.bashrc: eval "$(gatewayctl completion bash)"
    """
    terminal.write(generate_program(ctx.find_root().command, shell))


def generate_program(root: click.Command, shell: str) -> str:
    """Return the program with which a shell completes the words of a command."""
    complete = get_completion_class(shell)
    if complete is None:
        raise ValueError(f"there is no completion for {shell}")
    return complete(root, {}, "gatewayctl", _COMPLETION_VARIABLE).source().strip() + "\n"
