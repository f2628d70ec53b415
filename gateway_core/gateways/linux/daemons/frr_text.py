"""The text of FRR's configuration: its blocks, and which of them are the gateway's.

The gateway has the default BGP instance, what is named `gateway-*`, static routes with its tag, and what its
last configuration had: a route of the VRF, and names of an older version. All other lines are somebody
else's, and stay, letter by letter: they are read to the bounds of their blocks, and no further.

A BGP instance is the gateway's if `MARK` is beside it: FRR keeps that line, and drops comments.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway_contract.base.texts import listed

_MARK_NAME = "access-list gateway-core"
#: A line without effect. An older version had another remark.
MARK = f"{_MARK_NAME} remark The gateway replaces router bgp and what is named gateway-"

#: The tag of a static route that is the gateway's: FRR gives routes no name.
TAG = 4_200_140_140
_NAMED = re.compile(
    r"(access-list|ip prefix-list|ipv6 prefix-list|route-map) gateway-"
    rf"|(ip|ipv6) route \S+ reject tag {TAG} "
)
#: Not an instance of a VRF or a view.
_BGP = re.compile(r"router bgp \d+")
#: What an older version rendered with other names. All else in its file is FRR's own, such as `hostname`.
_RENDERED = re.compile(r"(ip prefix-list|ipv6 prefix-list|route-map) \S")
_VRF = "vrf "
#: What ends a context, and what ends the whole.
_EXIT, _END = re.compile(r"exit(-[a-z-]+)?"), "end"

#: What follows in a line is a secret.
_SECRET = re.compile(r"\b(password|secret|md5|authentication-key|key-string|authentication string)\b .+")
#: Lines in a message.
_SHOWN = 5


@dataclass(frozen=True)
class _Block:
    """A line at the left margin, with the lines of its context and the comments that follow."""

    lines: tuple[str, ...]

    @property
    def key(self) -> str:
        return self.lines[0].strip()

    @property
    def members(self) -> tuple[str, ...]:
        """The commands in its context."""
        found = (line.strip() for line in self.lines[1:])
        return tuple(line for line in found if line[:1] not in ("", "!") and not _EXIT.fullmatch(line))


@dataclass(frozen=True)
class OwnText:
    """The gateway's part of a configuration of FRR: `text`, in place of `former`."""

    text: str
    former: str = ""

    def merged(self, running: str) -> str:
        """Return the text, and then the lines of a running configuration that are not the gateway's."""
        return "".join(f"{line}\n" for line in (*self.text.splitlines(), *self._kept(running)))

    def foreign(self, running: str) -> tuple[str, ...]:
        """Return the lines of a BGP instance of somebody else that the text would replace, without
        secrets."""
        return foreign_instance(running, self.former) if _instances(self.text) else ()

    def is_own(self, command: str) -> bool:
        """Return whether a command, after its contexts on lines of their own, is for what is the
        gateway's."""
        key = command.splitlines()[0].strip().removeprefix("no ")
        if _BGP.fullmatch(key):
            return bool(_instances(self.text) or _instances(self.former))
        known = (block.key for text in (self.text, self.former) for block in _blocks(text))
        return bool(_NAMED.match(key)) or (key in known and bool(_RENDERED.match(key) or _is_vrf(key)))

    def _kept(self, running: str) -> Iterator[str]:
        replaces_bgp = bool(_instances(self.text)) or (
            bool(_instances(self.former)) and not foreign_instance(running, self.former)
        )
        drops_mark = replaces_bgp or is_marked(self.former)
        former = [*_blocks(self.former)]
        gone = {block.key for block in former if _RENDERED.match(block.key)} | {_END}
        for block in _blocks(running):
            if block.key.startswith(f"{_MARK_NAME} "):
                is_gone = drops_mark
            elif _BGP.fullmatch(block.key):
                is_gone = replaces_bgp
            else:
                is_gone = block.key in gone or bool(_NAMED.match(block.key))
            # Somebody else may have lines in the VRF too.
            own = _of_vrf(block.key, [*former, *_blocks(self.text)]).intersection(block.members)
            if not is_gone and (not own or own < {*block.members}):
                yield from (line for line in block.lines if line.strip() not in own)


def is_marked(text: str) -> bool:
    """Return whether a BGP instance is the gateway's."""
    return any(line.startswith(f"{_MARK_NAME} ") for line in text.splitlines())


def foreign_instance(text: str, former: str) -> tuple[str, ...]:
    """Return the lines of a BGP instance that is not the gateway's, without secrets; none without one.
    `former` is what the gateway wrote last: an older version wrote no mark."""
    if is_marked(text):
        return ()
    known = {line.strip() for line in former.splitlines()}
    found = {
        block.key: [f" {line}" for line in block.members if line not in known] for block in _instances(text)
    }
    lines = (line for key, lost in found.items() if lost or key not in known for line in (key, *lost))
    return tuple(map(without_secrets, lines))


def without_secrets(line: str) -> str:
    return _SECRET.sub(r"\1 ...", line)


def shown(lines: Sequence[str]) -> str:
    """Return the first of them, for a sentence."""
    return listed([line.strip() for line in lines], _SHOWN, "; ")


def _is_vrf(key: str) -> bool:
    return key.startswith(_VRF)


def _of_vrf(key: str, blocks: Sequence[_Block]) -> set[str]:
    if not _is_vrf(key):
        return set()
    return {member for block in blocks if block.key == key for member in block.members}


def _instances(text: str) -> list[_Block]:
    return [block for block in _blocks(text) if _BGP.fullmatch(block.key)]


def _blocks(text: str) -> Iterator[_Block]:
    lines: list[str] = []
    for line in text.splitlines():
        # FRR has comments between the parts of a context too.
        if lines and line[:1] not in ("", " ", "!") and not _EXIT.fullmatch(line.strip()):
            yield _Block(tuple(lines))
            lines = []
        lines.append(line)
    if lines:
        yield _Block(tuple(lines))
