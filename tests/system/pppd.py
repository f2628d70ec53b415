"""The files of pppd 2.4.9 as its own parsers read them. What these would treat otherwise than as plain text,
the readers here refuse: quotes, backslashes, comments, other files, and words that don't fit into a buffer.
"""

import re
from pathlib import Path
from typing import Any

#: Bytes of a word of a secrets file (MAXWORDLEN), and of a RADIUS secret (AUTH_PASS_LEN).
_WORD, _SECRET = 1024, 48
_MOST_SERVERS = 8


class Pppd:
    """pppd, and its RADIUS plugin. Methods raise ValueError."""

    def __init__(self, _: Path) -> None: ...

    def words(self, file: Path) -> list[list[str]]:
        """The words of each line of a secrets file."""
        lines = [words for words in _lines(file) if words]
        for word in (word for words in lines for word in words):
            _refuse(len(word) >= _WORD or word.startswith("@") or bool(set("\"'\\#") & set(word)), word)
        return lines

    def radius(self, file: Path) -> dict[str, Any]:
        """The servers with their ports and their secrets, and the name of this NAS."""
        options = {words[0]: words[1:] for words in _lines(file) if words}
        secrets = dict(map(tuple, self.words(Path(options["servers"][0]))))
        servers = {name: [_endpoint(each) for each in options[name]] for name in ("authserver", "acctserver")}
        read = [secrets[address] for address, _ in servers["authserver"]]
        for each in read:
            _refuse(len(each) > _SECRET, each)
        _refuse(len(read) > _MOST_SERVERS, str(file))
        (name,) = options["nas_identifier"]
        return {**servers, "nas_identifier": name, "secrets": read}

    def attributes(self, dictionary: Path) -> list[str]:
        """The names in a dictionary."""
        lines = [words for words in _lines(dictionary) if words]
        for kind, *words in lines:
            well_formed = {
                "ATTRIBUTE": r"\S+ \d+ (string|integer|ipaddr|date)( \S+)?",
                "VALUE": r"\S+ \S+ \d+",
            }
            pattern = well_formed.get(kind, r"\S+ \d+")
            _refuse(re.fullmatch(pattern, " ".join(words)) is None, " ".join((kind, *words)))
        return [words[1] for words in lines if words[0] == "ATTRIBUTE"]

    def takes_port_map(self, file: Path) -> bool:
        return all(len(words) in (0, 2) for words in _lines(file))


def _lines(file: Path) -> list[list[str]]:
    return [[] if line.startswith("#") else line.split() for line in file.read_text("ascii").splitlines()]


def _endpoint(text: str) -> list[Any]:
    address, _, port = text.partition(":")
    return [address, int(port)]


def _refuse(broken: bool, line: str) -> None:
    if broken:
        raise ValueError(f"pppd reads otherwise than as plain text: {line!r}")
