"""Tables and texts of MyST Markdown."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Empty without rows."""
    lines = [_row(row) for row in rows]
    return "".join([_row(head), _row(["---"] * len(head)), *lines]) if lines else ""


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def paragraph(text: str) -> str:
    """On one line, which the reader's window wraps."""
    return "".join(f"{' '.join(each.split())}\n\n" for each in text.strip().split("\n\n"))


def _row(cells: Sequence[str]) -> str:
    return "".join(f"| {' '.join(cell.split()).replace('|', chr(92) + '|')} " for cell in cells) + "|\n"
