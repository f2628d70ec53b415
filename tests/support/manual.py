"""The README and the pages of the documentation, and what a reader pastes from them into a shell."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
#: Separates the outputs of blocks.
_MARK = "\x1e"


def _listed() -> list[Path]:
    """Return the pages in the order of the index."""
    tables = re.findall(
        r"^```\{toctree\}\n(.*?)^```", (DOCS / "index.md").read_text(), re.MULTILINE | re.DOTALL
    )
    names = [line for table in tables for line in table.splitlines() if line and not line.startswith(":")]
    return [DOCS / f"{name}.md" for name in names]


PAGES = [ROOT / "README.md", *_listed()]


@dataclass(frozen=True)
class Block:
    """Lines for a shell, and what they print as the page shows it: `...` stands for anything."""

    where: str
    lines: str
    shown: str | None

    def printed(self, output: str) -> bool:
        if self.shown is None:
            return True
        pattern = ".*?".join(re.escape(part.strip(" ")) for part in self.shown.strip().split("..."))
        return re.fullmatch(pattern, output.strip(), re.DOTALL) is not None


def blocks(kind: str) -> list[Block]:
    """Return the blocks in the index's order: `sh` for a checkout, `shell` for a machine with the package."""
    return [block for page in PAGES for block in _blocks(page, kind)]


def steps(page: str, kind: str) -> dict[str, str]:
    """Return the lines for a shell in each section of a page, by the section's title. Lines that a test runs
    on machines of its own have the kind `bash`."""
    text = (DOCS / page).read_text()
    sections = re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    pattern = rf"^```{kind}\n(.*?)^```$"
    return {title: "".join(re.findall(pattern, body, re.MULTILINE | re.DOTALL)) for title, body in sections}


def script(chosen: list[Block]) -> str:
    """Join the blocks into one script, which writes the place of each to standard error, so that `outputs`
    can tell their outputs apart."""
    pasted = "".join(f"printf '{_MARK}'\necho '{one.where}' >&2\n{one.lines}" for one in chosen)
    # What a reader sees as a comment.
    return re.sub(r"  # exit status (\d+).*", r" || [ $? = \1 ]", pasted)


def wrong(chosen: list[Block], output: str) -> list[str]:
    """Return the blocks that printed something else than the page shows, with their outputs."""
    outputs = output.split(_MARK)[1:]
    assert len(outputs) == len(chosen)
    return [
        f"{one.where}: {printed}"
        for one, printed in zip(chosen, outputs, strict=True)
        if not one.printed(printed)
    ]


def _blocks(page: Path, kind: str) -> list[Block]:
    text = page.read_text()
    found = re.finditer(
        rf"^( *)```{kind}\n(.*?)^ *```\n(?:\n\1```text\n(.*?)^ *```\n)?", text, re.MULTILINE | re.DOTALL
    )
    return [
        Block(
            f"{page.relative_to(ROOT)}:{text.count(chr(10), 0, match.start()) + 1}",
            _outdented(match[2], match[1]),
            None if match[3] is None else _outdented(match[3], match[1]),
        )
        for match in found
    ]


def _outdented(lines: str, margin: str) -> str:
    return re.sub(f"^{margin}", "", lines, flags=re.MULTILINE)
