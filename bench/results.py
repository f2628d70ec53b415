"""The figures of the last run of each part, kept between runs in a file that is not committed."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from bench.pairs import Figure

_REPOSITORY = Path(__file__).parents[1]
FILE = _REPOSITORY / "build" / "bench" / "results.json"


@dataclass(frozen=True)
class Run:
    """One run of a part. Figures by the keys of their goals; the seconds that it took."""

    figures: Mapping[str, Figure]
    at: datetime
    seconds: float


@dataclass
class Results:
    """The runs by part."""

    runs: dict[str, Run] = field(default_factory=dict)

    def put(self, part: str, figures: Mapping[str, Figure], at: datetime, seconds: float) -> None:
        self.runs[part] = Run(figures, at, seconds)

    def figure(self, part: str, key: str) -> Figure | None:
        """None if it is not measured."""
        run = self.runs.get(part)
        return run.figures.get(key) if run else None

    @classmethod
    def read(cls, file: Path = FILE) -> "Results":
        """Those of the file; none without a file."""
        if not file.exists():
            return cls()
        held = json.loads(file.read_text())
        return cls(
            {
                part: Run(
                    {key: Figure(**figure) for key, figure in run["figures"].items()},
                    datetime.fromtimestamp(run["at"], UTC),
                    run["seconds"],
                )
                for part, run in held.items()
            }
        )

    def write(self) -> None:
        FILE.parent.mkdir(parents=True, exist_ok=True)
        held = {part: {**asdict(run), "at": run.at.timestamp()} for part, run in self.runs.items()}
        FILE.write_text(json.dumps(held, indent=1) + "\n")
