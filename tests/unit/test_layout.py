"""What no linter says of the modules: how long they are, and that none is imported by a made-up name."""

from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "gateway_api"
MOST_LINES = 300
#: A contract is read as a table.
MOST_CONTRACT_LINES = 480


def test_a_module_can_be_read_in_one_go() -> None:
    lines = {path: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    contracts = PACKAGE / "wire"
    long = [
        path
        for path, number in lines.items()
        if number > (MOST_CONTRACT_LINES if path.is_relative_to(contracts) else MOST_LINES)
    ]
    assert long == []


def test_no_module_is_imported_by_a_name_that_is_made_at_run_time() -> None:
    # ruff finds importlib.import_module, but not this.
    assert [path for path in PACKAGE.rglob("*.py") if "__import__" in path.read_text()] == []
