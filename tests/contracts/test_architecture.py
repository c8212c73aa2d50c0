"""The tables of docs/architecture.md against the code: what is kept where, who writes it, who reads it."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

from contracts.wire import subjects
from services.messaging.streams.definitions import BUCKETS, STREAMS

ROOT = Path(__file__).resolve().parents[2]
SERVICES = {"artifact_store", "gateway", "planner", "tool_runner"}
COMMON = {"messaging", "runtime", "shared"}
#: Every service provisions the streams; that is neither writing nor reading.
PROVISIONING = "services.messaging.streams.definitions"


def section(heading: str) -> str:
    """A section of the document."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert f"\n## {heading}\n" in text
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def rows(heading: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    lines = [line for line in section(heading).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def patterns_of(cell: str) -> set[str]:
    """The subjects in a cell, with `*` for each name."""
    return {re.sub(r"<\w+>", "*", subject) for subject in re.findall(r"`([^`]+)`", cell)}


def test_every_subject_of_a_stream_is_in_the_table() -> None:
    """With the stream that keeps it; and no other."""
    kept = {
        (pattern, row[1])
        for row in rows("Subjects and streams")
        for pattern in patterns_of(row[0])
        if row[1] != "no stream"
    }
    wanted = {(subject.replace(">", "*"), stream["name"]) for stream in STREAMS for subject in stream["subjects"]}
    wanted |= {(f"$KV.{bucket}.*", f"bucket `{bucket}`") for bucket in BUCKETS}
    assert kept == wanted | {("probe.*", "each stream its own")}


def test_who_writes_and_reads_is_in_the_table() -> None:
    """For each subject the services that name it in their code, themselves or through a module that services share."""
    named: dict[str, set[str]] = defaultdict(set)
    for subject, _, writers, readers in rows("Subjects and streams"):
        words = set(re.findall(r"\w+", f"{writers} {readers}"))
        for pattern in patterns_of(subject):
            named[pattern.partition(".")[0]] |= SERVICES if "every service" in writers else words & SERVICES
    named.pop("$KV")
    using: dict[str, set[str]] = {
        word: {service for name in names for service in users(name)}
        for word, names in builders().items()
        if word in named
    }
    using["due"] = set()  # The planner names it to TIMERS, and writes nothing there.
    assert {word: found for word, found in named.items() if word != "probe"} == using
    buckets = {
        "catalogue": users("CATALOGUE_BUCKET"),
        "runs": users("RUNS_BUCKET"),
        "artifacts": users("ARTIFACTS_BUCKET"),
    }
    for subject, _, writers, readers in rows("Subjects and streams"):
        if subject.startswith("`$KV."):
            assert set(re.findall(r"\w+", f"{writers} {readers}")) & SERVICES == buckets[subject.split(".")[1]], subject


def builders() -> dict[str, set[str]]:
    """The functions and patterns of `contracts.wire.subjects`, by the first word of the subjects that they give."""
    found: dict[str, set[str]] = defaultdict(set)
    for node in ast.parse((ROOT / "contracts" / "wire" / "subjects.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            for back in (each.value for each in ast.walk(node) if isinstance(each, ast.Return)):
                if isinstance(back, ast.JoinedStr) and isinstance(back.values[0], ast.Constant):
                    found[str(back.values[0].value).partition(".")[0]].add(node.name)
    for name, value in vars(subjects).items():
        if name.isupper() and isinstance(value, str) and "." in value:
            found[value.partition(".")[0]].add(name)
    return {word: names for word, names in found.items() if word != "probe"}


def imports(text: str, module: str) -> bool:
    """Whether a module is imported, whole or in part."""
    package, _, name = module.rpartition(".")
    return (
        re.search(rf"from {re.escape(module)} import|from {re.escape(package)} import [\w, ]*\b{name}\b", text)
        is not None
    )


@cache
def users(name: str) -> frozenset[str]:
    """The services whose code, or a shared module that it imports, names this of `subjects` or `keys`."""
    direct: set[str] = set()
    through: set[str] = set()
    for path in (ROOT / "services").rglob("*.py"):
        owner = path.relative_to(ROOT / "services").parts[0]
        text = path.read_text(encoding="utf-8")
        if re.search(rf"\b(?:subjects|keys)\.{name}\b", text):
            if owner in COMMON:
                through.add(".".join(path.relative_to(ROOT).with_suffix("").parts))
            else:
                direct.add(owner)
    for path in (ROOT / "services").rglob("*.py"):
        owner = path.relative_to(ROOT / "services").parts[0]
        if owner in SERVICES and any(
            imports(path.read_text(encoding="utf-8"), module) for module in through - {PROVISIONING}
        ):
            direct.add(owner)
    return frozenset(direct & SERVICES)


#: A file that the document names, and a function or class of it.
NAMED = re.compile(r"`((?:services|contracts|runwire)/[\w/]+\.py)(?:: ([\w.]+))?`")


def test_each_station_of_the_walk_names_a_function() -> None:
    """Twelve stations, one after another."""
    walk = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("\n## ")[0]
    _, *stations = re.split(r"^(\d+)\. ", walk, flags=re.MULTILINE)
    assert stations[::2] == [str(number) for number in range(1, 13)]
    assert [text for text in stations[1::2] if not any(name for _, name in NAMED.findall(text))] == []


def test_what_the_walk_names_is_there() -> None:
    """Every file, and every function or class that stands beside it."""
    named = NAMED.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert len(named) > 20
    for path, name in named:
        body: list[ast.stmt] = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
        for part in name.split(".") if name else ():
            inside = [
                node
                for node in body
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == part
            ]
            assert inside, f"{path}: {name}"
            body = inside[0].body
