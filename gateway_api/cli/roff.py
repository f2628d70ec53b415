"""man(7) pages: what the pages of all commands are made of."""

import re
from collections.abc import Iterable

from gateway_api.version import PRODUCT, VERSION


def head(name: str, section: int) -> str:
    return f'.TH "{escaped(name.upper())}" {section} "" "gateway-api {VERSION}" "{PRODUCT}"\n'


def named(name: str, summary: str) -> str:
    """The section NAME, by which apropos(1) finds the page."""
    return f".SH NAME\n{escaped(name)} \\- {escaped(summary.rstrip('.'))}\n"


def items(items: Iterable[tuple[str, str]]) -> str:
    return "".join(f".TP\n\\fB{escaped(name)}\\fR\n{escaped(about)}\n" for name, about in items)


def paragraphs(text: str | None) -> str:
    each = re.split(r"\n\s*\n", (text or "").strip())
    return "".join(f".PP\n{escaped(' '.join(one.split()))}\n" for one in each)


def verbatim(text: str) -> str:
    lines = "".join(f"{escaped(line)}\n" for line in text.strip("\n").split("\n"))
    return f".PP\n.nf\n{lines}.fi\n"


def see_also(*pages: tuple[str, int]) -> str:
    """`pages` are names with their sections."""
    return (
        ".SH SEE ALSO\n" + " ,\n".join(f".BR {escaped(name)} ({section})" for name, section in pages) + "\n"
    )


def escaped(text: str) -> str:
    """As roff reads it. Commands in backticks are bold."""
    safe = text.replace("\\", r"\e").replace("-", r"\-").replace('"', r"\(dq").replace("'", r"\(aq")
    safe = re.sub("`([^`]*)`", r"\\fB\1\\fR", safe)
    return rf"\&{safe}" if safe.startswith(".") else safe
