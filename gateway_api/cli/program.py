"""Programs of several commands."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click


class Group(click.Group):
    """A group of commands, whose help has them whole, and in sections if there are any."""

    group_class = type

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._sections: dict[str, list[str]] = {}

    def add_section(self, title: str, commands: Iterable[click.Command]) -> None:
        """Adds commands below a title of the help."""
        for each in commands:
            self.add_command(each)
            self._sections.setdefault(title, []).append(str(each.name))

    def sections(self) -> Iterator[tuple[str, list[tuple[str, click.Command]]]]:
        """The commands by their names, in their sections; those of no section come first."""
        held = {name for names in self._sections.values() for name in names}
        rest = [name for name in self.commands if name not in held]
        for title, names in {"Commands": rest, **self._sections}.items():
            if names:
                yield title, [(name, self.commands[name]) for name in names]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # click cuts the texts at the width of the terminal.
        sections = list(self.sections())
        width = max(len(name) for _, commands in sections for name, _ in commands)
        for title, commands in sections:
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), summary(command)) for name, command in commands])


def summary(command: click.Command) -> str:
    """The first sentence of its help."""
    return command.get_short_help_str(limit=1000)


def run(program: click.Command, name: str, words: Sequence[str] | None = None) -> int:
    """The exit status that a command returns, 0 for None; 2 after wrong arguments, with the usage on standard
    error; 1 after Ctrl-C. Without `words`, those of the process count."""
    try:
        return program.main(words, name, standalone_mode=False) or 0
    except click.UsageError as error:
        error.show()
        return error.exit_code
    except click.Abort as error:
        sys.stderr.write(f"{name}: stopped before the end{error}\n")
        return 1
