"""The package's own rules: imports go down only, and every module says what it is."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "gateway_api"
MOST_LINES = 300
MOST_CONTRACT_LINES = 650

#: By the longest name that a module's begins with. Above each other; `core` stands beside them.
FLOORS = {
    "version": 0, "base": 1,
    "wire.varlink": 1.2, "wire.contract": 1.4, "wire": 2,
    "daemon": 3,
    "audit": 4, "auth": 4, "events": 4, "hub": 4,
    "web.schemas": 5, "web.services": 5,
    "web": 6,
    "web.openapi": 7,
    "web.routes": 8,
    "web.app": 9,
    "serving": 10,
    "cli": 11,
    "cli.run": 12,
}  # fmt: skip

_GATEWAYS = "core.gateways"
#: What a gateway is, which all of the core may know; and the one module that may choose one.
_ANY_GATEWAY = "core.gateways.ports"
_CHOOSES_A_GATEWAY = "cli.core"


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def floor(module: str) -> float:
    """Of a module's name without the package's. Fails for one that has none."""
    fitting = [name for name in FLOORS if is_within(module, name)]
    assert fitting, f"{module} stands on no floor"
    return FLOORS[max(fitting, key=len)]


def package_of(module: str) -> str:
    return module.rpartition(".")[0]


def may_import(importer: str, imported: str) -> bool:
    """Both are names without the package's: `web.access`, `core.service`."""
    if is_within(importer, "core"):
        if not is_within(imported, "core"):
            return floor(imported) <= 2
        if is_within(importer, _GATEWAYS) or not is_within(imported, _GATEWAYS):
            return True
        return imported == _ANY_GATEWAY or importer == _CHOOSES_A_GATEWAY
    if is_within(imported, "core"):
        return importer == _CHOOSES_A_GATEWAY
    # Those at the top share a folder and nothing else.
    siblings = package_of(importer) != "" and package_of(importer) == package_of(imported)
    return floor(imported) < floor(importer) or (siblings and floor(imported) <= floor(importer))


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT / PACKAGE).with_suffix("").parts
    return ".".join(parts).removesuffix("__init__").rstrip(".")


FILES = {name_of(path): path for path in sorted((ROOT / PACKAGE).rglob("*.py"))}
MODULES = [name for name, path in FILES.items() if path.name != "__init__.py"]


def imports_in(source: str, module: str) -> Iterator[str]:
    """What the source imports of the package, wherever in the file it does so."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = [PACKAGE, *module.split(".")][: -node.level] if node.level else []
            start = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{start}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            if is_within(name, PACKAGE):
                yield module_in(name.removeprefix(PACKAGE).lstrip("."))


def module_in(name: str) -> str:
    """The module of what may be the name of something in one."""
    while name and name not in FILES:
        name = package_of(name)
    return name


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("import gateway_api.web.errors", "app"),
        ("from gateway_api.web.errors import install", "app"),
        ("from gateway_api.web import errors", "app"),
        ("def f():\n    from gateway_api.web import errors", "app"),
        ("if True:\n    import gateway_api.web.errors as e", "app"),
        ("from .web import errors", "app"),
        ("from .errors import install", "web.access"),
        ("from ..errors import install", "web.routes.login"),
    ],
)
def test_every_way_to_import_is_found(source: str, module: str) -> None:
    assert list(imports_in(source, module)) == ["web.errors"]


def test_imports_of_other_packages_are_passed_over() -> None:
    assert list(imports_in("import os, gateway_api_tools\nfrom flask import errors", "app")) == []


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_from_below_or_beside_it_only(module: str) -> None:
    found = set(imports_in(FILES[module].read_text(), module))
    assert sorted(name for name in found if not may_import(module, name)) == []


@pytest.mark.parametrize("module", [name for name in MODULES if not is_within(name, "core")])
def test_a_module_stands_on_a_floor(module: str) -> None:
    assert floor(module) in FLOORS.values()


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_nothing_by_a_name_made_at_run_time(module: str) -> None:
    names = {
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(ast.parse(FILES[module].read_text()))
        if isinstance(node, ast.Name | ast.Attribute)
    }
    assert names.isdisjoint({"__import__", "import_module"})


@pytest.mark.parametrize("package", [name for name in FILES if name not in MODULES])
def test_a_package_file_holds_a_docstring_only(package: str) -> None:
    tree = ast.parse(FILES[package].read_text())
    assert len(tree.body) == 1
    assert ast.get_docstring(tree)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_what_it_is(module: str) -> None:
    assert ast.get_docstring(ast.parse(FILES[module].read_text()))


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_no_longer_than_one_can_take_in(module: str) -> None:
    # A contract is read as a table.
    most = MOST_CONTRACT_LINES if is_within(module, "wire") else MOST_LINES
    assert len(FILES[module].read_text().splitlines()) <= most


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for path in FILES.values()}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
