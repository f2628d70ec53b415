"""What no linter says of the modules: how they import, and what their docstrings say."""

import ast
import builtins
import importlib
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from gateway_api.wire.contract import Failure

PACKAGE = Path(__file__).parents[2] / "gateway_api"

#: gunicorn's configurations: an import reads the environment and prepares folders.
_CONFIGURATIONS = ("gateway_api.serving.users", "gateway_api.serving.token")
#: A reader would have to look for what is meant.
_OPENING = re.compile(r"(?:The same|That of|Those|Of|What)\b|As [A-Z]\w*[.:]")
_ERROR = BaseException, Failure
_CLASS = r"(?:\w+\.)*_?[A-Z][a-z]\w*"


def test_no_module_is_imported_by_a_name_that_is_made_at_run_time() -> None:
    # ruff finds importlib.import_module, but not this.
    assert [path for path in PACKAGE.rglob("*.py") if "__import__" in path.read_text()] == []


def test_each_error_in_a_docstring_exists() -> None:
    assert [
        f"{name}:{line}: {error}"
        for name, path in _modules().items()
        for line, docstring in _docstrings(path)
        for error in _raised(docstring)
        if not _is_error(name, error)
    ] == []


def test_a_docstring_opens_with_what_the_thing_is_or_does() -> None:
    assert [
        f"{name}:{line}: {docstring}"
        for name, path in _modules().items()
        for line, docstring in _docstrings(path)
        if _OPENING.match(docstring) and docstring.partition(". ")[0] not in _published()
    ] == []


@cache
def _published() -> str:
    """The texts for clients, which some docstrings are: the OpenAPI document and the interface files."""
    texts = [PACKAGE.with_name("etc") / "openapi.json", *PACKAGE.glob("wire/*.varlink")]
    return " ".join(word for text in texts for word in text.read_text().split() if word != "#")


def _docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings of a module, with the lines of their owners."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (
            text := ast.get_docstring(node)
        ):
            yield getattr(node, "lineno", 1), " ".join(text.split())


@cache
def _modules() -> Mapping[str, Path]:
    """The file of each module, by its name."""
    parts = {path: path.relative_to(PACKAGE.parent).with_suffix("").parts for path in PACKAGE.rglob("*.py")}
    return {".".join(names).removesuffix(".__init__"): path for path, names in sorted(parts.items())}


def _raised(docstring: str) -> Iterator[str]:
    """The classes of "Raises A, B and C for this; D for that"."""
    for sentence in re.findall(r"\b[Rr]aises? (.*?)(?:\.\s|\.$|$)", docstring):
        yield from re.findall(rf"(?:^|,? and |,? or |, |; )({_CLASS})", sentence)


def _is_error(module: str, error: str) -> bool:
    """Whether a name of the module is an exception, or an error of a contract. A module does not import what
    only passes through it: that is an exception of another one."""
    first, *attributes = error.split(".")
    own = _space(module).get(first) or getattr(builtins, first, None)
    found: Any = own or _errors().get(first) or sys.modules.get(first)
    for attribute in attributes:
        found = getattr(found, attribute, None)
    return isinstance(found, type) and found is not Failure and issubclass(found, _ERROR)


@cache
def _errors() -> Mapping[str, type[Any]]:
    """The exceptions of all modules, and the errors of contracts, by their names."""
    return {
        name: held
        for module in _modules()
        for name, held in _space(module).items()
        if isinstance(held, type) and issubclass(held, _ERROR) and held.__module__ == module
    }


def _space(module: str) -> Mapping[str, Any]:
    """The names of a module."""
    if module in _CONFIGURATIONS:
        return {}
    return vars(importlib.import_module(module))  # noqa: TID251 - no import of the product
