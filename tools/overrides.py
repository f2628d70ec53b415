"""List where the product goes beyond what its dependencies document:

    .venv/bin/python -m tools.overrides

An upgrade of a dependency may break each line without notice. The lines are: attributes of our classes that
replace attributes of a dependency's class; assignments to attributes of a dependency's modules and objects;
private names; `eval`, `exec` and `settrace`. The reasons are in `tests/unit/tools/test_overrides.py`.
"""

import ast
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name

#: Names that dependencies document for subclasses or as settings, by the place where they do.
DOCUMENTED = {
    "apispec: API, BasePlugin": "apispec.schema_helper",
    "Click: API": "click.command_class click.convert click.format_commands click.format_completion"
    " click.group_class click.invoke click.shell_complete",
    "Flask: API": "flask.create_url_adapter flask.ensure_sync flask.request_class",
    "gevent: API, config, BaseServer and Hub": "gevent.handle_error gevent.track_greenlet_tree ?.max_accept",
    "gunicorn: docstrings of Worker; Settings, logger_class": "gunicorn.notify gunicorn.run gunicorn.access"
    " gunicorn.setup",
    "marshmallow: Custom Fields; API, Schema": "marshmallow.Meta marshmallow._deserialize"
    " marshmallow.default_error_messages marshmallow.error_messages",
    "prometheus_client: Custom Collectors": "prometheus_client.collect",
    "Python: enum, ssl, threading; socket, which gevent follows": "?._value_ ?.daemon ?.minimum_version"
    " ?.hostname_checks_common_name"
    " gevent.close gevent.do_handshake gevent.read gevent.recv gevent.send gevent.sendall",
    "Requests: API, HTTPAdapter and Session": "requests.init_poolmanager ?.trust_env",
    "Werkzeug: URL Routing; Response; LocalProxy": "werkzeug.regex ?.merge_slashes ?.redirect_defaults"
    " ?.status_code flask._get_current_object",
}

_ROOT = Path(__file__).parents[1]
_Members = Mapping[tuple[str, str], dict[str, int]]


def find_undocumented() -> list[tuple[str, int, str]]:
    """Return a tuple for each use of an undocumented feature: the module, the line, and the name as
    `package.name`. An unknown package is `?`."""
    nodes = [
        (".".join(path.relative_to(_ROOT).with_suffix("").parts), node)
        for path in sorted(_ROOT.glob("gateway*/**/*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
    ]
    members = {
        (module, node.name): _list_members(node) for module, node in nodes if isinstance(node, ast.ClassDef)
    }
    own_names = {name for names in members.values() for name in names}
    packages: dict[tuple[str, str], str] = {}
    places = set()
    for module, node in nodes:
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                for alias in names:
                    origin = getattr(node, "module", alias.name)
                    packages[module, (alias.asname or alias.name).partition(".")[0]] = _find_package(origin)
                    if _find_package(origin) and "._" in f"{origin}.{alias.name}":
                        places.add((module, node.lineno, f"{origin}.{alias.name}"))
            case ast.ClassDef():
                places |= {(module, line, name) for name, line in _find_overrides(module, node, members)}
            case ast.Attribute(attr=name, ctx=use) if name not in own_names:
                package = packages.get((module, _find_root(node)), "?")
                is_private = name.startswith("_") and not name.endswith("__")
                if package and (is_private or isinstance(use, ast.Store)):
                    places.add((module, node.lineno, f"{package}.{name}"))
            case ast.Call(func=ast.Name(id="eval" | "exec" as name) | ast.Attribute(attr="settrace" as name)):
                places.add((module, node.lineno, name))
    documented_names = set(" ".join(DOCUMENTED.values()).split())
    return sorted(place for place in places if place[2] not in documented_names)


def _find_package(module: str) -> str:
    """Return the name of the dependency that contains a module. Return an empty text if the module belongs to
    the product or to Python."""
    package = module.partition(".")[0]
    return "" if package in sys.stdlib_module_names or package.startswith("gateway") else package


def _find_root(node: ast.AST) -> str:
    """Return the leftmost expression of a chain of attributes and calls: `a` of `a.b().c`."""
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return ast.unparse(node)


def _list_members(body: ast.ClassDef) -> dict[str, int]:
    """Return a map from attribute to line, for the attributes that a class defines. The line is 0 if only
    instances assign the attribute."""
    lines = {}
    for node in (*ast.walk(body), *body.body):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                lines[name] = 0
            case (
                ast.FunctionDef(name=name)
                | ast.AsyncFunctionDef(name=name)
                | ast.Assign(targets=[ast.Name(id=name)])
            ) if node in body.body:
                lines[name] = node.lineno
            case ast.AnnAssign(target=ast.Name(id=name), value=value) if node in body.body:
                lines[name] = node.lineno if value else 0
    return lines


def _find_overrides(module: str, body: ast.ClassDef, members: _Members) -> Iterator[tuple[str, int]]:
    """Yield pairs of attribute and line, for each attribute of a class that overrides an attribute of a
    dependency's base class."""
    names = members[module, body.name]
    for base in body.bases:
        # A built-in class is no attribute of the module.
        with suppress(AttributeError):
            for kind in resolve_name(f"{module}:{ast.unparse(base).partition('[')[0]}").__mro__:
                # Those of a mixin count, too.
                mixin_members = members.get((kind.__module__, kind.__name__), {})
                names = dict.fromkeys(filter(mixin_members.get, mixin_members), body.lineno) | names
                if package := _find_package(kind.__module__):
                    overrides = (name for name in names if names[name] and name in vars(kind))
                    yield from ((f"{package}.{name}", names[name]) for name in overrides if name[:2] != "__")


if __name__ == "__main__":
    for module, line, name in find_undocumented():
        print(f"{module}:{line} {name}")
