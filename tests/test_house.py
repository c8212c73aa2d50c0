"""The rules of the house that no other tool checks: sizes, purity, imports, subjects, guards, mirrored tests."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mirrored import THROUGH, WHOLE_ROOMS, has_logic, is_mirrored
from tests.support.checkout import ROOT, imported, parsed, python_files

#: Lines of a file. What is longer is split by meaning.
FILE_LIMIT = 400
LINE_LIMIT = 120

#: Rooms (folders) and modules, `__init__` not counted, that one folder shows.
ROOM_LIMIT = 9
MODULE_LIMIT = 12

#: Lines of a function, without its docstring and without the functions inside it.
FUNCTION_LIMIT = 60

CODE = ("contracts", "runwire", "services")

#: Modules apart from I/O: tested without a server and replayed from a log, so they neither wait nor read a clock or
#: random numbers.
PURE = (
    "runwire/plans/*.py",
    "services/planner/run/**/*.py",
    "services/planner/conversation/encoding.py",
    "services/planner/conversation/native.py",
    "services/planner/conversation/rendering.py",
    "services/gateway/tables/proposal_view.py",
    "services/planner/replies/answer_stream/*.py",
    "services/planner/replies/marked/*.py",
    "services/planner/strategies/**/*.py",
    "services/shared/redaction/*.py",
    "services/tool_runner/results/forms.py",
    "services/tool_runner/calls/machine.py",
    "services/tool_runner/calls/state.py",
    "services/tool_runner/calls/events.py",
    "services/tool_runner/calls/commands.py",
    "services/tool_runner/check_rules.py",
)
IMPURE = {"asyncio", "datetime", "nats", "os", "random", "secrets", "socket", "subprocess", "threading", "time", "uuid"}


def test_files_stay_short() -> None:
    """A reader holds one file in the head."""
    long = {str(path): lines for path, text in python_files() if (lines := text.count("\n")) > FILE_LIMIT}
    assert not long


def test_lines_stay_short() -> None:
    """The formatter leaves long strings and comments alone; the reason of a `noqa` has a line of its own above it."""
    long = [
        f"{path}:{number}"
        for path, text in python_files()
        for number, line in enumerate(text.split("\n"), 1)
        if len(line) > LINE_LIMIT
    ]
    assert not long


def test_possessive_groups_are_atomic() -> None:
    """Python before 3.11.5 takes `(?:a|b+)*+` for something else: it loses its place. `(?>a|b+)*+` means the same."""
    group, found = re.compile(r"\((?P<atomic>\?>)?[^()]*\)(?P<possessive>(?:[*+?]|\{[0-9,]+\})\+)?"), []
    for path, text in python_files():
        if path.parts[0] not in CODE:
            continue
        rest, count = re.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "_", text), 1
        while count:
            found += [
                f"{path}: {each[0]}" for each in group.finditer(rest) if each["possessive"] and not each["atomic"]
            ]
            rest, count = group.subn("_", rest)
    assert not found


def test_functions_stay_short() -> None:
    """A function fits on a screen."""
    long = {
        f"{path}:{node.lineno} {node.name}": lines
        for path, text in python_files(*CODE)
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (lines := own_lines(node)) > FUNCTION_LIMIT
    }
    assert not long


def test_every_test_says_what_it_promises() -> None:
    """Its name and its docstring are one sentence. Ruff asks for none below `tests`, where a helper's name may do."""
    silent = [
        f"{path}:{node.lineno} {node.name}"
        for path, text in python_files("tests")
        for node in ast.walk(parsed(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
        and not ast.get_docstring(node)
    ]
    assert not silent


def own_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function from `def` on, without its docstring and without the functions inside it."""
    inside: set[int] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node is not function:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            inside.update(range(first, (node.end_lineno or first) + 1))
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        inside.update(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    return len(set(range(function.lineno, (function.end_lineno or function.lineno) + 1)) - inside)


@pytest.mark.parametrize("pattern", PURE)
def test_rules_live_apart_from_io(pattern: str) -> None:
    """No await, no clock, no chance."""
    matching = [(path, text) for path, text in python_files() if path.match(pattern)]
    assert matching, "the rules have moved: name their new place in PURE"
    for path, text in matching:
        assert not {name.partition(".")[0] for name in imported(text)} & IMPURE, path
        assert not [
            node.lineno for node in ast.walk(parsed(text)) if isinstance(node, ast.AsyncFunctionDef | ast.Await)
        ], path


def test_services_take_all_times_from_one_clock() -> None:
    """That of NATS, by `unix_ms`: those of machines differ."""
    own = {
        str(path)
        for path, text in python_files("services")
        if re.search(r"time\.time(_ns)?\(|datetime\.(utc)?now\(", text)
    }
    assert own == {"services/messaging/connection.py"}


def test_a_folder_shows_at_most_nine_rooms_and_twelve_modules() -> None:
    """What is more is sorted into rooms with a name."""
    modules: dict[str, set[str]] = {}
    rooms: dict[str, set[str]] = {}
    for path, _ in python_files(*CODE):
        folder = path.parent
        modules.setdefault(str(folder), set()).update({path.name} - {"__init__.py"})
        while folder.parent.parts:
            rooms.setdefault(str(folder.parent), set()).add(folder.name)
            folder = folder.parent
    crowded = {name for name, found in modules.items() if len(found) > MODULE_LIMIT}
    crowded |= {name for name, found in rooms.items() if len(found) > ROOM_LIMIT}
    assert not crowded


def test_contracts_need_pydantic_and_nothing_else() -> None:
    """Other names are not on every machine; and absolute names of its own would break the copy inside the wheel."""
    allowed = sys.stdlib_module_names | {"pydantic", "pydantic_core"}
    foreign = {
        f"{path}: {name}"
        for path, text in python_files("contracts")
        for name in imported(text)
        if name.partition(".")[0] not in allowed
    }
    assert not foreign


#: The first words of our subjects and keys, of those of NATS itself, and the names of streams.
SUBJECT = re.compile(
    r"\$(?:JS|KV|SRV)\b|_INBOX|KV_|(?:REQUESTS|INBOX|RUNS|CALLS|TIMERS|DEAD|HANDLINGS|ANNOUNCED)$|"
    r"(?:artifact|blob|call|context|control|dead|due|emit|handling|inbox|list|model|ref|request|run|spec|timer|tool)"
    r"\.(?:$|[*>{<]|[a-z]+$)"
)


#: Where subjects are built, and those of NATS itself that rights name.
DESCRIBED = tuple(Path("contracts", "wire", f"{name}.py") for name in ("subject", "subjects", "keys", "rights"))


def test_subjects_are_built_and_parsed_in_one_place() -> None:
    """Only `contracts/wire/subjects.py` and `keys.py` write or split a subject or key: they check every name in it."""
    found = []
    for path, text in python_files(*CODE):
        if path in DESCRIBED:
            continue
        tree = parsed(text)
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and id(node) not in prose
                and SUBJECT.match(node.value)
            ):
                found.append(f"{path}:{node.lineno}: {node.value!r}")
            if isinstance(node, ast.Call) and cuts_a_subject(node):
                found.append(f"{path}:{node.lineno}: {ast.unparse(node)}")
    # NATS's own form: the number of a pull, behind the prefix of our inbox.
    assert [hit for hit in found if not hit.startswith("services/messaging/pull_consumer.py")] == []


def cuts_a_subject(call: ast.Call) -> bool:
    """Whether a subject or key is taken apart at its dots."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in {"split", "rsplit", "partition", "rpartition"}:
        return False
    at_dots = bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == "."
    return at_dots and re.search(r"[Ss]ubject|\bkey\b", ast.unparse(call.func.value)) is not None


def test_the_document_names_every_guarded_write() -> None:
    """The NATS server settles races between processes. docs/internals.md lists where; there is no other lock."""
    spelt = {str(path) for path, text in python_files("services") if "Nats-Expected-Last" in text}
    assert spelt == {"services/messaging/guarded_write.py"}
    guards = re.compile(
        r"guarded_write\.write\(|Bucket\(.*\)\.create\(|bucket\.(create|update)\(|\.get_or_make\(|"
        r"kv\.(create\(|update\(|delete\(.*revision=)"
    )
    guarded = {str(path) for path, text in python_files("services") if guards.search(text)}
    guarded.remove("services/messaging/kv.py")  # It guards what others ask it to.
    text = (ROOT / "docs" / "internals.md").read_text(encoding="utf-8")
    section = text.partition("## What two processes could both do")[2].partition("\n## ")[0]
    table = "".join(line for line in section.splitlines() if line.startswith("|"))
    assert set(re.findall(r"`(services/[\w/]+\.py)`", table)) == guarded
    locks = {
        str(path)
        for path, text in python_files("services")
        if {"fcntl", "filelock"} & set(imported(text)) or re.search(r"multiprocessing\.(?!get_context\b)", text)
    }
    assert not locks


IMPORT_EVERYTHING = """
import importlib, os, pkgutil, sys, threading
before = threading.active_count()
for package in ("contracts", "runwire", "services"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not module.name.endswith(".__main__"):  # a program starts when it is imported
            importlib.import_module(module.name)
assert "litellm" not in sys.modules, "LiteLLM takes seconds: planner/models/litellm/model.py imports it when needed"
assert threading.active_count() == before, f"threads: {threading.enumerate()}"
if os.path.isdir("/proc/self/fd"):
    paths = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    opened = [os.readlink(path) for path in paths if os.path.exists(path)]
    assert not [name for name in opened if name.startswith("socket:")], opened
"""


@pytest.mark.timeout(300)  # Every module is imported, on a machine that may do other work.
def test_nothing_connects_or_starts_at_import() -> None:
    """Importing is free of effects: no thread, no socket, no model library."""
    result = subprocess.run(
        [sys.executable, "-c", IMPORT_EVERYTHING],
        cwd=ROOT,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_tests_mirror_modules() -> None:
    """A module with logic has a test at the path that mirrors it, or its exception is in `tests/mirrored.py`."""
    modules = [(path, text) for path, text in python_files(*CODE) if path.name not in {"__init__.py", "__main__.py"}]
    lacking = {str(path) for path, text in modules if has_logic(text) and not is_mirrored(ROOT, path)}
    unlisted = {name for name in lacking if not any(name.startswith(f"{room}/") for room in WHOLE_ROOMS)} - set(THROUGH)
    assert not unlisted, "add a test file at the mirrored path, or a line to tests/mirrored.py"
    assert not set(THROUGH) - lacking, "these need no line in tests/mirrored.py any more"
    named = [*THROUGH.values(), *(test for test, _ in WHOLE_ROOMS.values())]
    assert not [name for name in [*named, *WHOLE_ROOMS] if not (ROOT / name).exists()]
