"""Change the product by one expression at a time, and see which of these mutants the tests catch.

    .venv/bin/pip install 'coverage>=7.10'
    .venv/bin/python tools/mutants.py record tests/unit tests/contract
    .venv/bin/python tools/mutants.py make --count 300 --seed 43
    .venv/bin/python tools/mutants.py run --package gateway_api/hub
    .venv/bin/python tools/mutants.py report

`record` runs the tests once and writes which test executes which line, in all processes. `make` writes
mutants of executed lines, spread over the packages by their statements. `run` tries each in a copy of this
checkout, with the tests that execute its line, and goes on where it stopped. `report` prints a table by
package.

After a change of tests, `record` them again. Then `run --caught-by before.jsonl --results after.jsonl` tries
the mutants that were caught before, and `report before.jsonl after.jsonl` lists those that escape now.

mutmut and cosmic-ray do not serve: mutmut sees only lines that pytest's own process executes, not those of
gunicorn's workers and the core, and cosmic-ray runs the same command for each mutant.
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("gateway_api", "gateway_contract", "gateway_core", "gatewayctl")
ROOMS = ("unit", "contract", "torture", "system")
#: One mutant is tried with no more tests than this, by the times of the record.
MAX_SECONDS_PER_MUTANT = 60.0
#: Each of these modules starts a gateway. Those of tests/unit are not counted.
MAX_MODULES_PER_MUTANT = 2
MAX_SECONDS_PER_RECORD = 3600.0

_REPLACEMENTS = {
    "==": "!=",
    "!=": "==",
    "<": "<= >=",
    "<=": "< >",
    ">": ">= <=",
    ">=": "> <",
    "+": "-",
    "-": "+",
}
_REPLACEMENTS |= {"in": "not_in", "not in": "in", "is": "is_not", "is not": "is", "and": "or", "or": "and"}

#: What every process of a measured copy imports at its start: the lines that it executes belong to the test
#: that runs at that time, in whichever process.
_WATCH_PROGRAM = """
import _thread, os, time
import coverage

def switch(known):
    with open(NAME) as file:
        name = file.read()
    if name != known and (measured := coverage.Coverage.current()):
        measured.switch_context(name)
    return name

def watch(known, sleep=time.sleep):
    try:
        while is_on:
            known = switch(known)
            sleep(0.025)
    except Exception:
        pass

def start():
    global is_on
    is_on = True
    _thread.start_new_thread(watch, (switch(""),))

os.environ["COVERAGE_PROCESS_START"] = CONFIGURATION
coverage.process_startup()
os.register_at_fork(after_in_child=start)
start()
"""


class Mutant(NamedTuple):
    """Mutant of a file: the text `old` at one place is replaced by the text `new`. Columns are counted in
    bytes, from 0."""

    file: str
    line: int
    column: int
    old: str
    new: str
    statement: int  # first line of its statement, 0 outside of functions
    source: str  # text of the line

    @property
    def key(self) -> str:
        return f"{self.file}:{self.line}:{self.column} {self.old.splitlines()[0]!r} to {self.new!r}"

    def change(self, text: str) -> str | None:
        """Return the text of a file after the change. Return None if `old` is no longer at the place of the
        mutant."""
        lines = text.encode().splitlines(keepends=True)
        same = [number for number, line in enumerate(lines, 1) if line.decode().rstrip() == self.source]
        if self.line not in same and len(same) != 1:
            return None
        number, old = (self.line if self.line in same else same[0]), self.old.encode()
        start = sum(map(len, lines[: number - 1])) + self.column
        before, after = text.encode()[:start], text.encode()[start:]
        return (before + self.new.encode() + after[len(old) :]).decode() if after.startswith(old) else None


def find_mutants(file: str) -> Iterator[Mutant]:
    """Yield the mutants of a file. Some mutants may be invalid Python."""
    text = (ROOT / file).read_bytes()
    lines = text.splitlines(keepends=True)
    starts = [sum(map(len, lines[:number])) for number in range(len(lines) + 1)]

    def get_span(node: Any) -> tuple[int, int]:
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    for node, statement in list_nodes(ast.parse(text)):
        for start, end, new in _list_changes(node, get_span, text):
            line = sum(begin <= start for begin in starts)
            source = lines[line - 1].decode().rstrip()
            yield Mutant(
                file, line, start - starts[line - 1], text[start:end].decode(), new, statement, source
            )


def list_nodes(node: ast.AST, statement: int = 0, is_inside: bool = False) -> Iterator[tuple[ast.AST, int]]:
    """Yield pairs of a node that a mutant may change, and the first line of the statement that contains the
    node. The line is 0 outside functions."""
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "__name__ == '__main__'"):
        return
    if isinstance(node, ast.Expr) and re.match(r"_?log(ger)?\.", ast.unparse(node)):
        return
    statement = node.lineno if isinstance(node, ast.stmt) and is_inside else statement
    yield node, statement
    # Python 3.11 does not know the places in an f-string.
    for name, value in () if isinstance(node, ast.JoinedStr) else ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if name in ("annotation", "returns") and child is not None:
                # The limits of a field are behaviour: Annotated[int, Meta(ge=1)].
                calls = [each for each in ast.walk(child) if isinstance(each, ast.Call)]
                yield from ((each, statement) for call in calls for each in ast.walk(call))
            elif isinstance(child, ast.AST) and name != "decorator_list":
                function = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
                is_child_inside = is_inside or (name == "body" and isinstance(node, function))
                yield from list_nodes(child, statement if is_child_inside else 0, is_child_inside)


def _list_changes(
    node: Any, get_span: Callable[[Any], tuple[int, int]], text: bytes
) -> Iterator[tuple[int, int, str]]:
    """Yield the start, the end and the new text of each change that is possible for a node. Positions are
    byte offsets in `text`."""

    def replace_operators(operands: Iterable[ast.expr]) -> Iterator[tuple[int, int, str]]:
        for left, right in pairwise(operands):
            between = text[get_span(left)[1] : get_span(right)[0]].decode()
            word = between.strip(" \n()")
            start = get_span(left)[1] + between.find(word)
            for new in _REPLACEMENTS.get(word, "").split():
                yield start, start + len(word), new.replace("_", " ")

    match node:
        case ast.Compare():
            yield from replace_operators([node.left, *node.comparators])
        case ast.BoolOp():
            yield from replace_operators(node.values)
        case ast.BinOp():
            sides, sequences = (node.left, node.right), (ast.JoinedStr, ast.List, ast.Tuple)
            texts = (isinstance(getattr(side, "value", None), str | bytes) for side in sides)
            if not any(texts) and not any(isinstance(side, sequences) for side in sides):
                yield from replace_operators(sides)
        case ast.UnaryOp(op=ast.Not()):
            yield get_span(node)[0], get_span(node)[0] + len("not "), ""
        case ast.Constant(value=bool()):
            yield *get_span(node), str(not node.value)
        case ast.Constant(value=int() | float()):
            yield *get_span(node), repr(node.value + 1)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            if isinstance(test, ast.Name | ast.Attribute | ast.Call):
                start, end = get_span(test)
                yield start, end, f"(not {text[start:end].decode()})"
        case ast.Expr(value=ast.Call()) | ast.Raise():
            yield *get_span(node), "pass"
        case ast.Return(value=ast.expr()) if ast.unparse(node.value) != "None":
            yield *get_span(node), "return None"
        case ast.Break():
            yield *get_span(node), "continue"
        case ast.Continue():
            yield *get_span(node), "break"


class Copy:
    """Copy of the checkout, with a virtual environment whose programs import the product's modules only from
    the copy."""

    def __init__(self, is_measured: bool) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mut-"))
        self.root, self.data = self.folder / "r", self.folder / "d"
        for folder in (self.folder, self.data, self.folder / "t"):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o777)
        list_command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.check_output(list_command, cwd=ROOT, text=True).split("\0"):
            if name and (ROOT / name).exists():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name, follow_symlinks=False)
        programs, environment = Path(sys.executable).parent, self.root / ".venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
        for path in programs.parent.iterdir():
            if not (environment / path.name).exists():
                (environment / path.name).symlink_to(path)
        for path in programs.iterdir():
            first, _, rest = path.read_bytes().partition(b"\n")
            if first.startswith(f"#!{programs}".encode()):
                shutil.copy2(path, environment / "bin")
                (environment / "bin" / path.name).write_bytes(f"#!{environment}/bin/python\n".encode() + rest)
        (packages,) = environment.glob("lib/python*/site-packages")
        paths = [str(self.root), sysconfig.get_path("purelib")]
        if is_measured:
            (self.folder / "name").touch()
            names = (str(self.folder / "name"), str(self.folder / "coveragerc"))
            (packages / "mutants_watch.py").write_text(f"NAME, CONFIGURATION = {names}\n{_WATCH_PROGRAM}")
            paths.append("import mutants_watch")
        (packages / "copy.pth").write_text("\n".join(paths) + "\n")

    def pytest(self, arguments: list[str], seconds: float) -> tuple[int | None, str]:
        """Run pytest in the copy. Return the exit status and the output. The status is None if the tests take
        longer than `seconds`."""
        command = [str(self.root / ".venv/bin/python"), "-m", "pytest", "-q", "--tb=no", "--no-showlocals"]
        command += ["-p", "no:cacheprovider", f"--basetemp={self.folder}/t/t", *arguments]
        environment = {**os.environ, "TMPDIR": f"{self.folder}/t"}
        options: Any = {
            "cwd": self.root,
            "env": environment,
            "stdin": subprocess.DEVNULL,
            "start_new_session": True,
        }
        # No file: tests limit the size of files.
        process = subprocess.Popen(
            command, **options, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        output = list[str]()
        reader = threading.Thread(target=lambda: output.extend(process.stdout or ()))
        reader.start()
        status = None
        with suppress(subprocess.TimeoutExpired):
            status = process.wait(seconds)
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if f"{self.folder}/".encode() in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)
        process.kill()
        process.wait()
        reader.join(10)
        return status, "".join(output)

    def write(self, file: str, text: str) -> None:
        """Write the text of a module to the copy, and delete the module's bytecode. Python would otherwise
        use the bytecode, because Python compares modification times only to the second."""
        (self.root / file).write_text(text)
        for compiled in (self.root / file).parent.glob(f"__pycache__/{Path(file).stem}.*"):
            compiled.unlink()


def run_in_copies(
    jobs: int, work: Callable[[Copy, Any], None], tasks: list[Any], is_measured: bool = False
) -> None:
    """Call `work` with a copy and a task, for each task. At most `jobs` tasks run at the same time, and each
    of them has a copy for itself. With `is_measured`, the copies record the executed lines."""
    copies = [Copy(is_measured) for _ in tasks[:jobs]]
    free = copies.copy()

    def run_task(task: Any) -> None:
        copy = free.pop()
        try:
            work(copy, task)
        finally:
            free.append(copy)

    try:
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(run_task, tasks))
    finally:
        for copy in copies:
            shutil.rmtree(copy.folder, ignore_errors=True)


class Record:
    """SQLite file that records which test executes which line. All parameters of a test function count as one
    test."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._database = sqlite3.connect(path, check_same_thread=False)
        self._lock = threading.Lock()
        self._database.executescript(
            "create table if not exists test (name text primary key, seconds real);"
            "create table if not exists executed"
            " (test text, file text, lines text, primary key (test, file));"
        )
        self.seconds = dict(self._database.execute("select name, seconds from test"))

    def replace(self, modules: list[str], seconds: dict[str, float], executed: dict[Any, set[int]]) -> None:
        rows = [(*names, json.dumps(sorted(lines))) for names, lines in executed.items()]
        with self._lock, self._database:
            for module in modules:
                self._database.execute("delete from test where name glob ?", [f"{module}::*"])
                self._database.execute("delete from executed where test glob ?", [f"{module}::*"])
            self._database.executemany("insert into test values (?, ?)", seconds.items())
            self._database.executemany("insert into executed values (?, ?, ?)", rows)

    def read_executed(self, file: str) -> dict[str, set[int]]:
        """Return a map from test to the lines of the file that the test executes."""
        query = "select test, lines from executed join test on test = name where file = ?"
        with self._lock:
            rows = self._database.execute(query, [file]).fetchall()
        return {test: set(json.loads(lines)) for test, lines in rows}

    def choose(self, mutant: Mutant, rooms: list[str]) -> list[str]:
        """Return the tests in the given rooms that execute the line of a mutant, up to limits of time and
        modules. Fast tests, and tests of modules that execute many lines of the mutant's file, come first."""
        executed = self.read_executed(mutant.file)
        statements = {
            statement for _, statement in list_nodes(ast.parse((ROOT / mutant.file).read_text()))
        } - {0}
        # An import executes the other lines: each test counts that executes a function of this file.
        lines = {mutant.line, mutant.statement} if mutant.statement else statements
        matching_tests = {test for test in executed if executed[test] & lines}
        if not mutant.statement:
            package, _, name = mutant.file.removesuffix(".py").replace("/", ".").rpartition(".")
            import_pattern = re.compile(rf"from {package} import [^#\n]*\b{name}\b|\b{package}\.{name}\b")
            modules = {_get_module(test) for test in self.seconds if _get_room(test) == "unit"}
            modules = {module for module in modules if import_pattern.search((ROOT / module).read_text())}
            matching_tests |= {test for test in self.seconds if _get_module(test) in modules}
        lines_by_module = defaultdict[str, set[int]](set)
        for test in executed:
            lines_by_module[_get_module(test)] |= executed[test] & statements
        tests, seconds, modules = list[str](), 0.0, set()
        for test in sorted(
            matching_tests,
            key=lambda test: (self.seconds[test] + 0.01) / (len(lines_by_module[_get_module(test)]) + 1) ** 2,
        ):
            new_modules = modules | {_get_module(test)} if _get_room(test) != "unit" else modules
            new_seconds = seconds + self.seconds[test]
            if (
                _get_room(test) in rooms
                and new_seconds <= MAX_SECONDS_PER_MUTANT
                and len(new_modules) <= MAX_MODULES_PER_MUTANT
            ):
                tests.append(test)
                seconds, modules = new_seconds, new_modules
        return tests


def _get_module(test: str) -> str:
    return test.partition("::")[0]


def _get_room(test: str) -> str:
    return test.split("/")[1]


# While tests are recorded, this file is a plugin of pytest.

_SECONDS_BY_TEST = Counter[str]()


def pytest_configure() -> None:
    # This process switches by itself.
    sys.modules["mutants_watch"].is_on = False  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Tell all measured processes which test starts, so that executed lines are counted for this test. pytest
    calls this hook for each test."""
    import coverage

    name, folder = item.nodeid.partition("[")[0], Path(os.environ["TMPDIR"]).parent
    (folder / "new").write_text(name)
    (folder / "new").replace(folder / "name")
    measured = coverage.Coverage.current()
    assert measured is not None
    measured.switch_context(name)
    if _get_room(name) != "unit":
        time.sleep(0.06)  # until the others know
    began = time.monotonic()
    try:
        return (yield)
    finally:
        _SECONDS_BY_TEST[name] += time.monotonic() - began


def pytest_sessionfinish() -> None:
    (Path(os.environ["TMPDIR"]).parent / "seconds").write_text(json.dumps(_SECONDS_BY_TEST))


def record_lines(record: Record, paths: list[str], jobs: int) -> None:
    """Run the tests in `paths`, and record which test executes which line. At most `jobs` runs of pytest are
    in progress at the same time."""
    from coverage.numbits import numbits_to_nums

    folders = [[ROOT / name] if name.endswith(".py") else (ROOT / name).rglob("test_*.py") for name in paths]
    modules = sorted(str(path.relative_to(ROOT)) for paths in folders for path in paths)

    def run(copy: Copy, modules: list[str]) -> None:
        sources = ",".join(f"{copy.root}/{package}" for package in PRODUCT)
        (copy.folder / "coveragerc").write_text(
            f"[run]\nsource = {sources}\ndata_file = {copy.data}/lines\nparallel = true\n"
            "concurrency = greenlet, thread\npatch = fork, _exit\nsigterm = true\n"
        )
        (copy.folder / "name").write_text("")
        status, output = copy.pytest(["-p", "tools.mutants", *modules], MAX_SECONDS_PER_RECORD)
        executed = defaultdict[tuple[str, str], set[int]](set)
        for path in copy.data.iterdir():
            with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as data:
                for file, test, lines in data.execute(
                    "select path, context, numbits from line_bits join file on file.id = file_id"
                    " join context on context.id = context_id where context <> ''"
                ):
                    executed[test, os.path.relpath(file, copy.root)] |= set(numbits_to_nums(lines))
            path.unlink()
        if status in (0, 1):
            record.replace(modules, json.loads((copy.folder / "seconds").read_text()), executed)
        print(*modules, f"status {status}", *output.splitlines()[-1:], flush=True)

    # A few at a time: modules share a gateway, and a part that fails is not the whole.
    run_in_copies(
        jobs, run, [modules[start : start + 4] for start in range(0, len(modules), 4)], is_measured=True
    )


def make_mutants(record: Record, count: int, seed: int) -> Iterator[Mutant]:
    """Yield about `count` mutants of executed lines, at most one per line. The number of mutants of a package
    is proportional to the package's number of statements. The same `seed` chooses the same mutants."""
    sizes, by_package = Counter[str](), defaultdict[str, dict[str, list[Mutant]]](lambda: defaultdict(list))
    for path in sorted(path for each in PRODUCT for path in (ROOT / each).rglob("*.py")):
        file, package = str(path.relative_to(ROOT)), str(path.parent.relative_to(ROOT))
        executed = set().union(*({0} | lines for lines in record.read_executed(file).values()))
        for node, statement in list_nodes(ast.parse(path.read_text())):
            sizes[package] += isinstance(node, ast.stmt) and statement in executed
        for mutant in find_mutants(file):
            if mutant.statement in executed:
                by_package[package][f"{file}:{mutant.line}"].append(mutant)

    def draw(place: str) -> random.Random:
        # Of the same place, whatever else is executed: another record has almost the same mutants.
        return random.Random(f"{seed} {place}")

    start = 0.0
    for package, size in sorted(sizes.items()):
        end = start + count * size / sizes.total()
        places = sorted(by_package[package], key=lambda place: draw(place).random())
        mutants = (draw(place).choice(by_package[package][place]) for place in places)
        yield from islice(filter(is_valid, mutants), round(end) - round(start))
        start = end


def is_valid(mutant: Mutant) -> bool:
    """Return True if the mutated file is valid Python and differs from the original program."""
    text = (ROOT / mutant.file).read_text()
    try:
        return ast.dump(ast.parse(mutant.change(text) or text)) != ast.dump(ast.parse(text))
    except SyntaxError:
        return False


def read_results(path: Path | None) -> dict[str, dict[str, Any]]:
    """Return a map from mutant to the mutant's last result in a file of results. The map is empty if there is
    no such file."""
    lines = path.read_text().splitlines() if path and path.exists() else []
    return {result["mutant"]: result for result in map(json.loads, lines)}


class Trial:
    """Runner of tests against a mutant. A test that fails is repeated without the mutant, to see whether the
    mutant is the cause."""

    def __init__(self, record: Record) -> None:
        self._record, self._passing, self._failing = record, set[str](), set[str]()

    def run(self, copy: Copy, mutant: Mutant, rooms: list[str], first: str) -> dict[str, Any]:
        """Run the tests in the given rooms against a mutant, and return the result. `first` is the name of
        the test that caught the mutant before, which runs first, or an empty text."""
        mutated_text = mutant.change((ROOT / mutant.file).read_text())
        if mutated_text is None:
            return {"result": "gone"}
        tests = self._record.choose(mutant, rooms)
        parts = [[test for test in tests if _get_room(test) == room] for room in rooms]
        for part in [[first]] * (first in self._record.seconds) + parts:
            by = self._find_catcher(copy, mutant.file, mutated_text, part)
            if by is not None:
                return {"result": "caught", "by": by}
        return {"result": "escaped" if tests else "no test", "tests": len(tests)}

    def _find_catcher(self, copy: Copy, file: str, mutated_text: str, tests: list[str]) -> str | None:
        """Return the name of a test that fails with the mutant and passes without the mutant. Return None if
        there is no such test."""
        text = (ROOT / file).read_text()
        while tests := [test for test in tests if test not in self._failing]:
            modules = {_get_module(test) for test in tests if _get_room(test) != "unit"}
            seconds = 60 * (1 + len(modules)) + 3 * sum(self._record.seconds[test] for test in tests)
            copy.write(file, mutated_text)
            status, output = copy.pytest(["-x", *tests], seconds)
            copy.write(file, text)
            if status == 0:
                return None
            failed_tests = re.findall(r"^(?:FAILED|ERROR) (tests/[^\s\[]+)", output, re.M)
            name = (
                str(failed_tests[0])
                if status == 1 and failed_tests
                else "timeout"
                if status is None
                else "start"
            )
            if name in self._passing:
                return name
            # A module of tests that is not collected fails as a whole.
            arguments = {"timeout": tests, "start": ["--collect-only", *tests]}.get(name, [name])
            status, output = copy.pytest(arguments, seconds)
            if status == 0:
                self._passing |= {name} - {"timeout", "start"}
                return name
            if name == "start":
                sys.exit(f"These tests do not start. Record again?\n{output}")
            if name == "timeout":
                return None
            self._failing.add(name)
        return None


def run(record: Record, mutants: list[Mutant], options: argparse.Namespace) -> None:
    """Run the tests against each mutant that is selected by the options and has no result for the selected
    rooms yet. Append each result to the file of results."""
    results, before = read_results(options.results), read_results(options.caught_by)
    trial, lock = Trial(record), threading.Lock()

    def list_remaining_rooms(mutant: Mutant) -> list[str]:
        former_result = results.get(mutant.key, {"result": "", "rooms": []})
        return [
            room
            for room in options.rooms
            if former_result["result"] != "caught" and room not in former_result["rooms"]
        ]

    def is_wanted(mutant: Mutant) -> bool:
        was_caught = before.get(mutant.key, {"result": ""})["result"] == "caught"
        is_asked = was_caught or not options.caught_by
        return is_asked and mutant.file.startswith(options.package) and bool(list_remaining_rooms(mutant))

    def attempt(copy: Copy, mutant: Mutant) -> None:
        rooms, former_result, began = (
            list_remaining_rooms(mutant),
            results.get(mutant.key, {}),
            time.monotonic(),
        )
        result = trial.run(copy, mutant, rooms, before.get(mutant.key, {}).get("by", ""))
        if result["result"] == "no test":
            result["result"] = former_result.get("result", "no test")
        result |= {
            "rooms": [*former_result.get("rooms", []), *rooms],
            "seconds": round(time.monotonic() - began),
        }
        with lock, options.results.open("a") as file:
            file.write(json.dumps({"mutant": mutant.key, **result}) + "\n")
        print(result["result"], mutant.key, result.get("by", ""), f"{result['seconds']} s", flush=True)

    run_in_copies(options.jobs, attempt, [mutant for mutant in mutants if is_wanted(mutant)])


def report(paths: list[Path]) -> None:
    """Print a table with the number of caught and escaped mutants of each package, and the mutants that
    escaped. With two files of results, print the mutants that were caught in the first file and escaped in
    the second file."""
    all_results = [read_results(path) for path in paths]
    counts = [Counter[tuple[str, str]]() for _ in paths]
    for results, count in zip(all_results, counts, strict=True):
        for key, result in results.items():
            for package in (key.partition(":")[0].rpartition("/")[0], "~ all"):
                count[package, "caught" if result["result"] in ("caught", "gone") else "escaped"] += 1
    print(f"{'package':42}", *(f"{path.stem[:8]:>8} caught escaped" for path in paths))
    for package in sorted({package for count in counts for package, _ in count}):
        numbers = [(count[package, "caught"], count[package, "escaped"]) for count in counts]
        print(f"{package:42}", *(f"{sum(pair):8} {pair[0]:6} {pair[1]:7}" for pair in numbers))
    for key, result in sorted(all_results[-1].items()):
        former_result = all_results[0].get(key, {})
        if result["result"] not in ("caught", "gone") and (
            former_result is result or former_result.get("result") == "caught"
        ):
            print(
                f"{result['result']:8} {key}",
                f"(was caught by {former_result['by']})" if "by" in former_result else "",
            )


def main() -> None:
    raw, folder = argparse.RawDescriptionHelpFormatter, ROOT / "build" / "mutants"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    add = parser.add_argument
    add("command", choices=["record", "make", "run", "report"])
    add("paths", nargs="*", help="record: modules or folders of tests; report: results")
    add("--record", type=Path, default=folder / "lines.sqlite")
    add("--mutants", type=Path, default=folder / "mutants.json")
    add("--results", type=Path, default=folder / "results.jsonl")
    add("--jobs", type=int, default=2, help="record, run: how many at a time")
    add("--count", type=int, default=300, help="make: how many mutants")
    add("--seed", type=int, default=43, help="make: the same seed chooses the same mutants")
    add("--all-of", metavar="FILE", help="make: every mutant of a file of the product")
    add("--caught-by", type=Path, metavar="RESULTS", help="run: only mutants that were caught there")
    add("--package", default="gateway", help="run: folder or file, such as gateway_api/hub")
    add("--rooms", nargs="*", default=ROOMS, help="run: folders of tests, such as unit")
    options = parser.parse_intermixed_args()
    record = Record(options.record)
    match options.command:
        case "record":
            record_lines(record, options.paths or ["tests/unit", "tests/contract"], options.jobs)
        case "make":
            file = options.all_of
            candidates = (
                filter(is_valid, find_mutants(file))
                if file
                else make_mutants(record, options.count, options.seed)
            )
            mutants = list(dict.fromkeys(candidates))
            options.mutants.write_text("[\n" + ",\n".join(map(json.dumps, mutants)) + "\n]\n")
            print(f"{len(mutants)} mutants in {options.mutants}")
        case "run":
            run(record, [Mutant(*each) for each in json.loads(options.mutants.read_text())], options)
        case "report":
            report([Path(path) for path in options.paths] or [options.results])


if __name__ == "__main__":
    main()
