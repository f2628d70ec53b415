"""Programs of several commands."""

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class


@add_completion_class
class QuotedBashComplete(BashComplete):
    """bash puts a word into the line as it is, and subscribers choose names: after Enter, `x;reboot` without
    quotes would be two commands."""

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{shlex.quote(item.value)}" if item.value else super().format_completion(item)


class LateCommands(MutableMapping[str, click.Command]):
    """Commands by their names. `load` imports one when it is first used: a help text does without them."""

    def __init__(self, names: Iterable[str], load: Callable[[str], click.Command]) -> None:
        self._held: dict[str, click.Command | None] = dict.fromkeys(names)
        self._load = load

    def __getitem__(self, name: str) -> click.Command:
        found = self._held[name]
        if found is None:
            found = self._held[name] = self._load(name)
        return found

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._held[name] = command

    def __delitem__(self, name: str) -> None:
        del self._held[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._held)

    def __len__(self) -> int:
        return len(self._held)


class Group(click.Group):
    """A group of commands, whose help has them whole, and in sections if there are any. `summaries` are those
    of late commands."""

    group_class = type

    def __init__(
        self,
        *args: Any,
        sections: Mapping[str, Iterable[str]] | None = None,
        summaries: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self._sections = {title: list(names) for title, names in (sections or {}).items()}
        self._summaries = summaries or {}

    def add_section(self, title: str, commands: Iterable[click.Command]) -> None:
        """Add commands below a title of the help."""
        for each in commands:
            self.add_command(each)
            self._sections.setdefault(title, []).append(str(each.name))

    def sections(self) -> Iterator[tuple[str, list[str]]]:
        """The names of the commands, in their sections; those of no section come first."""
        held = {name for names in self._sections.values() for name in names}
        rest = [name for name in self.commands if name not in held]
        for title, names in {"Commands": rest, **self._sections}.items():
            if names:
                yield title, names

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click cuts the texts at the width of the terminal.
        sections = list(self.sections())
        width = max(len(name) for _, names in sections for name in names)
        for title, names in sections:
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), self._summary(name)) for name in names])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # click would import all late commands.
        found = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        words = [CompletionItem(name, help=self._summary(name)) for name in found]
        return words + click.Command.shell_complete(self, ctx, incomplete)

    def _summary(self, name: str) -> str:
        return self._summaries.get(name) or summary(self.commands[name])


def summary(command: click.Command) -> str:
    """Return the first sentence of its help."""
    return command.get_short_help_str(limit=1000)


def say(text: str) -> None:
    """Print lines for the operator."""
    sys.stdout.write(f"{text}\n")


def run(program: click.Command, name: str, words: Sequence[str] | None = None) -> int:
    """Return the exit status that a command returns, 0 for None; 2 after wrong arguments, with the usage on
    standard error; 1 after Ctrl-C. Without `words`, those of the process count."""
    try:
        return program.main(words, name, standalone_mode=False) or 0
    except click.UsageError as error:
        error.show()
        return error.exit_code
    except click.Abort as error:
        sys.stderr.write(f"{name}: stopped before the end{error}\n")
        return 1
