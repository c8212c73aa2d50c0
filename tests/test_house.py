"""The rules of the house that no other tool checks: sizes, imports, forbidden texts, pointers, the lock."""

import ast
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.mirrored import THROUGH, WHOLE_ROOMS, has_logic, is_mirrored

ROOT = Path(__file__).resolve().parent.parent

#: Lines of a file. What is longer is split by meaning.
FILE_LIMIT = 440
TEST_FILE_LIMIT = 500

#: Lines of a function, without its docstring and without the functions inside it.
FUNCTION_LIMIT = 44

# The classes in brackets keep this file from finding itself.
FORBIDDEN = {
    "a path of somebody's machine": re.compile(
        r"(?<![\w.-])/(?:[w]ork|[r]oot|[U]sers|[h]ome(?!/(?:runwire|nonroot)\b)|tmp/[r]w)/[\w.]"
    ),
    "the host of a package registry": re.compile(
        r"pypi[.]org/simple|files[.]pythonhosted|registry[.]npmjs|proxy[.]golang"
    ),
    "an index for an installer": re.compile(
        r"--(?:extra-)?[i]ndex-url|--[f]ind-links|[\"']?resolved[\"']?: *[\"']http|registry *= *[\"']?http"
    ),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE [K]EY"),
}

CODE = ("contracts", "runwire", "services")

# : Rules that live apart from I/O: tested without a server and replayed from a log, so they may not wait, nor ask the
# clock or chance.
PURE = (
    "services/planner/run/*.py",
    "services/planner/conversation/compaction.py",
    "services/planner/conversation/images.py",
    "services/planner/conversation/json_actions.py",
    "services/planner/conversation/native.py",
    "services/planner/conversation/rendering.py",
    "services/planner/conversation/triage_critique.py",
    "services/planner/replies/answer_stream/*.py",
    "services/shared/redaction/*.py",
    "services/tool_runner/calls/machine.py",
    "services/tool_runner/calls/state.py",
    "services/tool_runner/calls/events.py",
    "services/tool_runner/calls/commands.py",
)
IMPURE = {"asyncio", "datetime", "nats", "os", "random", "secrets", "socket", "subprocess", "threading", "time", "uuid"}


@cache
def files() -> tuple[Path, ...]:
    """Every file of the checkout that git keeps or would keep."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
    return tuple(path for name in names if name and (path := ROOT / name).is_file() and not path.is_symlink())


def python_files(*folders: str) -> Iterator[tuple[Path, str]]:
    """Path below the root and text of every Python file, or of those in `folders`."""
    for path in files():
        below = path.relative_to(ROOT)
        if path.suffix == ".py" and (not folders or below.parts[0] in folders):
            yield below, path.read_text(encoding="utf-8")


def test_files_stay_short() -> None:
    """A reader holds one file in the head."""
    long = {
        str(path): lines
        for path, text in python_files()
        if (lines := text.count("\n")) > (TEST_FILE_LIMIT if path.parts[0] == "tests" else FILE_LIMIT)
    }
    assert not long


def test_functions_stay_short() -> None:
    """A function fits on a screen."""
    long = {
        f"{path}:{node.lineno} {node.name}": lines
        for path, text in python_files(*CODE)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (lines := own_lines(node)) > FUNCTION_LIMIT
    }
    assert not long


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
            node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.AsyncFunctionDef | ast.Await)
        ], path


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


def imported(text: str) -> Iterator[str]:
    """The absolute module names that a file imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def test_no_file_names_a_machine_a_registry_or_a_key() -> None:
    """The checkout works wherever it lies, with whatever registry its reader uses."""
    found = []
    for path in files():
        text = path.read_bytes()
        if b"\0" in text:
            continue
        for what, pattern in FORBIDDEN.items():
            found += [
                f"{path.relative_to(ROOT)}: {what}: {hit[0]!r}"
                for hit in pattern.finditer(text.decode(errors="replace"))
            ]
    assert not found


@pytest.mark.parametrize(
    "parts",
    [
        ("a file:///ro", "ot/.cache"),
        ("COPY /wo", "rk/main ."),
        ("https://pypi.org/sim", "ple/"),
        ('"resolv', 'ed": "https://'),
    ],
)
def test_what_no_file_may_name_would_be_found(parts: tuple[str, str]) -> None:
    """The patterns above are written so that they miss themselves; they must not miss the rest."""
    assert any(pattern.search("".join(parts)) for pattern in FORBIDDEN.values())


@pytest.mark.parametrize(
    "text", ["https://example.org/work/list", "frame/work/flow", "WORKDIR /home/runwire/app", "root/main"]
)
def test_what_is_nobodys_path_may_stand(text: str) -> None:
    """Addresses, relative paths and the folders of an image name nobody's machine."""
    assert not any(pattern.search(text) for pattern in FORBIDDEN.values())


# : How somebody points into a text that no reader of the checkout has: a working paper and its chapter, a finding, an
# issue.
ELSEWHERE = re.compile(
    r"\b(?:ACTIONS|BRIEF|DESIGN|HOUSE|PLANS|SPEC)(?:\.md\b| [0-9])"
    r"|(?<![\w/.-])(?:[.]{2}/)*(?:shared|spec|reference|handover)/[\w./-]*\w"
    r"|\b[Ff]inding #?[0-9]|\b[Ii]ssue #?[0-9]|§ ?[0-9]|\bF[0-9]{2}\b"
)
#: A file of docs, and a section of it.
POINTER = re.compile(r"\bdocs/((?:decisions/)?[\w-]+\.md)(?:#([\w-]+))?")
DECISION = re.compile(r"\bdocs/decisions/([0-9]{4})(?![\w-])")
LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)?(?:#([\w-]+))?\)")


def texts() -> Iterator[tuple[Path, str]]:
    """Path below the root and content of every text of the checkout that somebody wrote by hand."""
    for path in files():
        below, data = path.relative_to(ROOT), path.read_bytes()
        if (
            b"\0" not in data
            and path.suffix not in {".lock", ".json", ".sum", ".csv"}
            and below != Path("tests/test_house.py")
        ):
            yield below, data.decode(errors="replace")


def test_no_text_points_out_of_the_checkout() -> None:
    """A reader of a comment has the checkout and nothing else: it gives its reason, or names a section of docs."""
    found = [f"{path}: {hit[0]!r}" for path, text in texts() for hit in ELSEWHERE.finditer(text)]
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        "(ACTIONS 7)",
        "see DESIGN 5.",
        "as in HOUSE.md",
        "spec/PLANS.md says",
        "../shared/reference/nats.md",
        "finding 12",
        "issue #8",
        "F14: closed",
    ],
)
def test_what_points_out_of_the_checkout_would_be_found(text: str) -> None:
    """The pattern above sees what has been there."""
    assert ELSEWHERE.search(text)


def test_what_is_pointed_to_is_there() -> None:
    """Every file of docs that a text names exists, and so does its section."""
    lost = []
    for path, text in texts():
        if path.parts[:2] == ("tests", "examples"):  # The tool that searches has documents of its own.
            continue
        lost += [
            f"{path}: {hit}"
            for hit in DECISION.findall(text)
            if not list((ROOT / "docs" / "decisions").glob(f"{hit}-*.md"))
        ]
        named = [(Path("docs", name), section) for name, section in POINTER.findall(text)]
        if path.suffix == ".md":
            named += [(path.parent / name if name else path, section) for name, section in LINK.findall(text)]
        lost += [
            f"{path}: {name}#{section}"
            for name, section in named
            if not (ROOT / name).exists() or section not in {"", *sections(ROOT / name)}
        ]
    assert not lost


def test_every_decision_is_in_the_index() -> None:
    """With its number and a link."""
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(
        r"^\| \[(\d{4})\]\((\1-[\w-]+\.md)\)", (folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert sorted(name for _, name in listed) == sorted(path.name for path in folder.glob("[0-9]*.md"))


@cache
def sections(path: Path) -> frozenset[str]:
    """The anchors of a file's headings, as GitHub makes them."""
    if path.suffix != ".md":
        return frozenset()
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return frozenset(re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings)


#: The first words of our subjects and keys, of those of NATS itself, and the names of streams.
SUBJECT = re.compile(
    r"\$(?:JS|KV|SRV)\b|_INBOX|KV_|(?:REQUESTS|INBOX|RUNS|CALLS|TIMERS|DEAD|HANDLINGS|ANNOUNCED)$|"
    r"(?:artifact|blob|call|context|control|dead|due|emit|handling|inbox|list|model|ref|request|run|spec|timer|tool)\.(?:$|[*>{<]|[a-z]+$)"
)


#: Where subjects are built, and the descriptions that tests/contracts/test_asyncapi.py compares with what is built.
DESCRIBED = tuple(Path("contracts", name) for name in ("subjects.py", "keys.py", "channels.py", "asyncapi.py"))


def test_subjects_are_built_and_parsed_in_one_place() -> None:
    """Only `contracts/subjects.py` and `keys.py` write or split a subject or key: they check every name in it."""
    found = []
    for path, text in python_files(*CODE):
        if path in DESCRIBED:
            continue
        tree = ast.parse(text)
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
    """The NATS server settles races between processes. docs/architecture.md lists where; there is no other lock."""
    spelt = {str(path) for path, text in python_files("services") if "Nats-Expected-Last" in text}
    assert spelt == {"services/messaging/guarded_write.py"}
    guards = re.compile(r"guarded_write\.write\(|Bucket\(.*\)\.create\(|_bucket\.(create|update)\(")
    guarded = {str(path) for path, text in python_files("services") if guards.search(text)}
    guarded.remove("services/messaging/kv.py")  # It guards what others ask it to.
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = text.partition("## What two processes could both do")[2].partition("\n## ")[0]
    table = "".join(line for line in section.splitlines() if line.startswith("|"))
    assert set(re.findall(r"`(services/[\w/]+\.py)`", table)) == guarded
    locks = {
        str(path)
        for path, text in python_files("services")
        if {"fcntl", "filelock", "multiprocessing"} & set(imported(text))
    }
    assert not locks


@pytest.mark.parametrize(
    ("folder", "extra"),
    [
        ("services/runtime", "runtime"),
        ("services/messaging", "runtime"),
        ("services/shared", "runtime"),
        ("services/images", "images"),
        ("services/gateway", "gateway"),
        ("services/planner", "planner"),
        ("services/tool_runner", "tool-runner"),
        ("services/artifact_store", "artifact-store"),
        ("runwire", "cli"),
        ("tests", "all"),
        ("benchmarks", "all"),
        ("examples", "all"),
    ],
)
def test_what_is_imported_is_declared(folder: str, extra: str) -> None:
    """A container holds the extra of its service alone: what only another extra installs is missing there."""
    declared = declared_by(extra) | (
        {canonicalize_name(Requirement(line).name) for line in project()["dependency-groups"]["dev"]}
        if extra == "all"
        else set()
    )
    own = {"benchmarks", "contracts", "examples", "runwire", "services", "tests"}
    owners = packages_distributions()
    undeclared = {
        f"{path}: {name}"
        for path, text in python_files(folder.partition("/")[0])
        if path.is_relative_to(folder)
        for name in {name.partition(".")[0] for name in imported(text)} - own - sys.stdlib_module_names
        if not {canonicalize_name(owner) for owner in owners.get(name, [name])} & declared
    }
    assert not undeclared


def declared_by(extra: str) -> set[str]:
    """The distributions that an extra names, those of the extras inside it, and the base."""
    found = {canonicalize_name(Requirement(line).name) for line in project()["project"]["dependencies"]} | {
        "pydantic-core"
    }
    for line in project()["project"]["optional-dependencies"][extra]:
        requirement = Requirement(line)
        found.add(canonicalize_name(requirement.name))
        if requirement.name == "runwire":
            for inner in requirement.extras:
                found |= declared_by(inner)
    return found


@cache
def project() -> dict[str, Any]:
    """What pyproject.toml says."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


IMPORT_EVERYTHING = """
import importlib, os, pkgutil, sys, threading
before = threading.active_count()
for package in ("contracts", "runwire", "services"):
    for module in pkgutil.walk_packages(importlib.import_module(package).__path__, package + "."):
        if not module.name.endswith(".__main__"):  # a program starts when it is imported
            importlib.import_module(module.name)
assert "litellm" not in sys.modules, "LiteLLM takes seconds: planner/models/litellm.py imports it when needed"
assert threading.active_count() == before, f"threads: {threading.enumerate()}"
if os.path.isdir("/proc/self/fd"):
    paths = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    opened = [os.readlink(path) for path in paths if os.path.exists(path)]
    assert not [name for name in opened if name.startswith("socket:")], opened
"""


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


@cache
def pins() -> dict[str, Version]:
    """Name and version of every package in the lock."""
    found = re.findall(
        r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE
    )
    return {canonicalize_name(name): Version(version) for name, version in found}


def test_the_lock_holds_what_the_project_asks_for() -> None:
    """A dependency that changed in pyproject.toml needs `make lock`."""
    asked = [
        *project()["project"]["dependencies"],
        *project()["dependency-groups"]["dev"],
        *project()["build-system"]["requires"],
    ]
    for extra in project()["project"]["optional-dependencies"].values():
        asked += extra
    missing = [
        line
        for line in asked
        if (requirement := Requirement(line)).name != "runwire"
        and (
            canonicalize_name(requirement.name) not in pins()
            or pins()[canonicalize_name(requirement.name)] not in requirement.specifier
        )
    ]
    assert not missing


def test_every_line_of_the_lock_is_a_pin_a_hash_or_a_comment() -> None:
    """So no line can name a host, a path or another file."""
    line = re.compile(r"#.*|[A-Za-z0-9._-]+==[^ ;\\]+( ; [^\\]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?")
    odd = [
        text
        for text in (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
        if not line.fullmatch(text)
    ]
    assert not odd
    assert pins()["litellm"] == Version("1.102.4")


def test_no_installed_package_runs_code_at_every_start() -> None:
    """A stolen release of a dependency once brought a .pth file that ran in every process; only known ones may."""
    # The last one does nothing but where `make coverage` has set its variables.
    known = {"distutils-precedence.pth", "_virtualenv.pth", "a1_coverage.pth"}
    site = Path(sysconfig.get_path("purelib"))
    running = {
        path.name
        for path in site.glob("*.pth")
        if re.search(r"^import\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert running <= known


def test_tests_mirror_modules() -> None:
    """A module with logic has a test at the path that mirrors it, or its exception is in `tests/mirrored.py`."""
    modules = [(path, text) for path, text in python_files(*CODE) if path.name not in {"__init__.py", "__main__.py"}]
    lacking = {str(path) for path, text in modules if has_logic(text) and not is_mirrored(ROOT, path)}
    unlisted = {name for name in lacking if not any(name.startswith(f"{room}/") for room in WHOLE_ROOMS)} - set(THROUGH)
    assert not unlisted, "add a test file at the mirrored path, or a line to tests/mirrored.py"
    assert not set(THROUGH) - lacking, "these need no line in tests/mirrored.py any more"
    named = [*THROUGH.values(), *(test for test, _ in WHOLE_ROOMS.values())]
    assert not [name for name in [*named, *WHOLE_ROOMS] if not (ROOT / name).exists()]
