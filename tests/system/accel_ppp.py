"""The grammar of accel-ppp.conf(5), strictly, without the meaning of options.

Debian has no package of it. What its parser would treat otherwise than as plain text, these readers refuse:
nested options, references to other options, lines that don't fit into its buffers. A file is included by the
last line of a section only: its lines belong to the section before them.
"""

#: With the line's end and the closing NUL.
_BUFFER, _SECRETS_BUFFER = 1024, 4096
_SPACE = " \t"
_INCLUDE = "$include"

Options = list[tuple[str, str | None]]


def configuration(text: str) -> dict[str, Options]:
    """The options of each section, in order; None for one without a value. An included file is the option
    `$include`. Raises ValueError."""
    sections: dict[str, Options] = {}
    options: Options | None = None
    for line in text.splitlines():
        _refuse(len(line) + 2 > _BUFFER, line)
        line = line.strip(_SPACE)
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            name = line[1:].partition("]")[0]
            _refuse(line != f"[{name}]" or name in sections, line)
            options = sections[name] = []
            continue
        _refuse(options is not None and options[-1:] != [] and options[-1][0] == _INCLUDE, line)
        if line.startswith(f"{_INCLUDE} /"):
            _refuse(options is None or " " in line.removeprefix(f"{_INCLUDE} "), line)
            assert options is not None
            options.append((_INCLUDE, line.removeprefix(f"{_INCLUDE} ")))
            continue
        name = _until(line, f"{_SPACE}=")
        rest = line[len(name) :]
        value = rest[1:] if rest.startswith("=") else None
        _refuse(options is None or not name or name[0] in "$}" or bool(rest) == (value is None), line)
        _refuse(value is not None and (value == "" or value[0] in f"{_SPACE}$" or value[-1] == "{"), line)
        assert options is not None
        options.append((name, value))
    return sections


def radius_server(value: str) -> dict[str, str]:
    """The address, the secret and the options of a server. Raises ValueError."""
    address, secret, *options = value.split(",")
    is_backup = options[-1:] == ["backup"]
    _refuse(not all("=" in option for option in options[: len(options) - is_backup]), value)
    named = dict(option.partition("=")[::2] for option in options)
    return {"address": address, "secret": secret, **named}


def secrets(text: str) -> list[list[str]]:
    """The words of each line. Raises ValueError."""
    lines = []
    for line in text.splitlines():
        _refuse(len(line) + 2 > _SECRETS_BUFFER, line)
        if line.startswith("#"):
            continue
        words = line.replace("\t", " ").split(" ")
        # Quotes and backslashes are special at the start of a word, and within a quoted one.
        _refuse(len(words) != 4 or not all(words) or any(word[0] in "'\"" for word in words), line)
        lines.append(words)
    return lines


def _until(text: str, ends: str) -> str:
    return text[: next((place for place, one in enumerate(text) if one in ends), len(text))]


def _refuse(broken: bool, line: str) -> None:
    if broken:
        raise ValueError(f"accel-ppp reads otherwise than as plain text: {line!r}")
