"""The options that go together: each command with several ways of use, and the options of each way.

An option that a way does not use is refused: ignored, it would mislead. The options of a command that is not
in `WAYS` go together.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple


class Way(NamedTuple):
    """A way to use a command, chosen by an option or argument `by`, or by none. `options` go with it, and at
    least one of those in `needs`. Spaces are between names."""

    by: str | None
    options: str
    needs: str = ""

    @property
    def names(self) -> Collection[str | None]:
        return {self.by, *self.options.split(), *self.needs.split()}


_LIST = "--filter --sort --limit"

#: By the words after `gatewayctl`. A command without a way that nothing chooses needs one of the others.
WAYS: Mapping[str, tuple[Way, ...]] = {
    "subscribers rate": (
        Way("TARGET", "--for --until --dry-run", needs="--down --up"),
        Way("--where", "--for --until --dry-run --per-second --yes", needs="--down --up"),
        Way("--file", "--for --until --dry-run --yes --skip-bad --offline-ok"),
    ),
    "subscribers disconnect": (
        Way("TARGET", "--dry-run --yes"),
        Way("--interface", "--dry-run --yes"),
        Way("--where", "--dry-run --yes --per-second"),
    ),
    "config show": (Way(None, "PATH"), Way("--candidate", "PATH"), Way("--revision", "PATH")),
    "config compare": (Way(None, "FROM TO"), Way("--revision", "")),
    "qos": (Way(None, _LIST), Way("--profiles", "")),
    "cgnat": (Way(None, _LIST), Way("--stats", "")),
    "demux": (Way(None, _LIST), Way("--config", "")),
}

#: Pairs that exclude each other, of a command or, with '', of all.
APART: Mapping[str, tuple[tuple[str, str], ...]] = {
    "": (("--context", "--all"),),
    "subscribers rate": (("--for", "--until"),),
    # The id is of an event of one gateway.
    "events": (("--after", "--all"),),
}


def broken_rules(path: str, given: Collection[str]) -> Iterator[str]:
    """The rules that the given options and arguments of a command break, each with the names of both."""
    for one, other in (*APART[""], *APART.get(path, ())):
        if one in given and other in given:
            yield f"{one} and {other} exclude each other."
    ways = WAYS.get(path)
    if ways is None:
        return
    chosen = [way for way in ways if way.by in given]
    if len(chosen) > 1:
        yield f"{' and '.join(str(way.by) for way in chosen)} exclude each other."
    elif way := next(iter([*chosen, *(way for way in ways if way.by is None)]), None):
        yield from _of_way(way, ways, given)
    else:
        yield f"One of {', '.join(str(way.by) for way in ways)} is required."


def _of_way(way: Way, ways: Collection[Way], given: Collection[str]) -> Iterator[str]:
    for name in sorted(given):
        users = [str(each.by) for each in ways if name in each.names and each.by]
        if name in way.names or not any(name in each.names for each in ways):
            continue
        yield f"{name} does not go with {way.by}" + (f": it is for {' and '.join(users)}." if users else ".")
    if way.needs and not any(name in given for name in way.needs.split()):
        yield f"{way.by} requires {way.needs.replace(' ', ' or ')}."
