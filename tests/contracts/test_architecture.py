"""The table of subjects against the code that uses it, and the documents against the code that they name."""

import ast
import inspect
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from contracts.wire import keys, subjects
from contracts.wire.subject import SERVICES, Subject

ROOT = Path(__file__).resolve().parents[2]


#: A subject that the planner names to TIMERS only, what every service does, and what NATS micro services answer.
NOT_IN_CODE = {"due", "probe", "$SRV"}


def test_who_writes_and_reads_a_subject_uses_it() -> None:
    """For each kind of subject, and each bucket, the services whose code names it. No right is left over."""
    said: dict[str, set[str]] = defaultdict(set)
    names: dict[str, set[str]] = defaultdict(set)
    for module in (subjects, keys):
        rows = {name: row for name, row in vars(module).items() if isinstance(row, Subject)}
        kinds = {name: row.bucket or row.address.partition(".")[0] for name, row in rows.items()}
        for name, row in rows.items():
            said[kinds[name]] |= {*row.writes, *row.reads, *row.counted_by, *row.watched_by} & {*SERVICES}
            names[kinds[name]].add(name)
        for function in ast.parse(inspect.getsource(module)).body:
            if isinstance(function, ast.FunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.Name) and node.id in rows:
                        names[kinds[node.id]].add(function.name)
    assert {kind: users(names[kind]) for kind in said if kind not in NOT_IN_CODE} == {
        kind: services for kind, services in said.items() if kind not in NOT_IN_CODE
    }


@cache
def used_in(path: Path) -> tuple[set[str], set[str]]:
    """What a module names of `subjects` and `keys`, and which modules it imports."""
    text = path.read_text(encoding="utf-8")
    imported = set()
    for package, names in re.findall(r"^\s*from (services[\w.]*) import ([^\n]+)", text, re.MULTILINE):
        imported |= {package, *(f"{package}.{name}" for name in re.findall(r"\w+", names))}
    return set(re.findall(r"\b(?:subjects|keys)\.(\w+)", text)), imported


def users(names: set[str]) -> set[str]:
    """The services whose code, or a shared module that it imports, names one of these of `subjects` or `keys`."""
    found: set[Path] = set()
    shared: set[Path] = set()
    paths = {path: path.relative_to(ROOT) for path in (ROOT / "services").rglob("*.py")}
    for path, place in paths.items():
        if used_in(path)[0] & names:
            (found if place.parts[1] in SERVICES else shared).add(place)
    # Every service provisions; that is no use.
    modules = {".".join(place.with_suffix("").parts) for place in shared} - {"services.messaging.streams"}
    found |= {place for path, place in paths.items() if used_in(path)[1] & modules}
    return {place.parts[1] for place in found} & {*SERVICES}


#: A file that a document names, and a function or class of it.
NAMED = re.compile(r"`((?:services|contracts|runwire)/[\w/]+\.py)(?::\s+([\w.]+))?`")


def test_each_station_of_the_walk_names_a_function() -> None:
    """Twelve stations, one after another, on a page that can be read at once."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert page.count("\n") <= 120
    assert max(map(len, page.splitlines())) <= 120
    walk = page.partition("\n## The walk of one run\n")[2].partition("\n## ")[0]
    _, *stations = re.split(r"^(\d+)\. ", walk, flags=re.MULTILINE)
    assert stations[::2] == [str(number) for number in range(1, 13)]
    assert [text for text in stations[1::2] if not any(name for _, name in NAMED.findall(text))] == []


def test_what_documents_name_is_there() -> None:
    """Every file, and every function or class that stands beside it."""
    lost = []
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")):
        for path, name in NAMED.findall(page.read_text(encoding="utf-8")):
            if not (ROOT / path).exists() or (name and not has(ROOT / path, name)):
                lost.append(f"{page.relative_to(ROOT)}: {path}: {name}")
    assert lost == []


def has(path: Path, name: str) -> bool:
    """Whether a module has a function or class of this name; `A.b` is in the class A."""
    body: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    for part in name.split("."):
        inside = [
            node
            for node in body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == part
        ]
        if not inside:
            return False
        body = inside[0].body
    return True
