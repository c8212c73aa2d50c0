"""Loading tools from a file."""

import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from runwire.errors import ToolsNotLoaded
from runwire.serving import main, server
from runwire.serving.server import load_tools, unique

TOOL = "from runwire import tool\n\n@tool(name={name!r})\ndef anything() -> int:\n    return 1\n"


@pytest.fixture(autouse=True)
def _own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of these tests are on the path of no other test, whose processes would import what lies there."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(server, "_FOLDERS", [])


def write(folder: Path, name: str = "my_tools.py", *, tool: str = "anything", before: str = "") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(before + TOOL.format(name=tool))
    return file


def test_all_tools_of_a_file_by_name(tmp_path: Path) -> None:
    """Annotations may be texts, and the file may import its neighbours."""
    (tmp_path / "runwire_test_neighbour.py").write_text("NAME = 'zeta'\n")
    file = write(tmp_path, before="from __future__ import annotations\nfrom runwire_test_neighbour import NAME\n")
    file.write_text(file.read_text() + "\nsecond = tool(name=NAME)(lambda: 2)\nalias = anything\n")

    assert [one.name for one in load_tools(file)] == ["anything", "zeta"]


@pytest.mark.parametrize("how", ["spawn", "forkserver"])
def test_processes_of_a_tool_can_import_its_file(tmp_path: Path, how: str) -> None:
    """A pool sends functions by the names of their modules. A second file of that name does not take its place."""
    double = "def double(n):\n    return {} * n\n"
    (one,) = load_tools(write(tmp_path, f"runwire_pool_{how}.py", before=double.format(2)))
    load_tools(write(tmp_path / "other", f"runwire_pool_{how}.py", before=double.format(3)))
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(how)) as pool:
        assert pool.submit(sys.modules[one.__module__].double, 4).result(60) == 8


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("ends.py", "import sys; sys.exit(0)", r"ended with sys.exit\(0\)"),
        ("none.py", None, "there is no file"),
        ("tools.txt", "", "is not a Python file"),
        ("empty.py", "x = 1\n", "put @tool above"),
    ],
)
def test_a_file_without_tools_is_refused(tmp_path: Path, name: str, text: str | None, reason: str) -> None:
    """With the reason."""
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ToolsNotLoaded, match=reason):
        load_tools(tmp_path / name)


@pytest.mark.parametrize("hiding", ["contracts/x.py", "runwire.py"])
def test_a_neighbour_that_would_hide_our_packages_is_refused(tmp_path: Path, hiding: str) -> None:
    """It would be imported instead of ours; a folder of data with that name would not."""
    file = write(tmp_path)
    (tmp_path / "contracts" / "data").mkdir(parents=True)
    load_tools(file)
    (tmp_path / hiding).parent.mkdir(exist_ok=True)
    (tmp_path / hiding).write_text("")
    with pytest.raises(ToolsNotLoaded, match=r"would hide Runwire's own package"):
        load_tools(file)


def test_two_tools_of_one_name_are_refused(tmp_path: Path) -> None:
    """Over all files that are served together."""
    first, second = write(tmp_path / "a"), write(tmp_path / "b")
    with pytest.raises(ToolsNotLoaded, match="two tools are called 'anything'"):
        unique([*load_tools(first), *load_tools(second)])


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("def broken(:\n", "SyntaxError: invalid syntax"),
        ("import nowhere_to_be_found\n", "ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        (
            "from runwire import tool\n@tool(desc='x', idempotnt=True)\ndef a() -> None: ...\n",
            "TypeError: tool() got an unexpected keyword argument 'idempotnt'",
        ),
    ],
)
def test_a_file_that_fails_shows_its_author_the_line(text: str, last: str, tmp_path: Path) -> None:
    """And the error, without frames of Runwire."""
    file = tmp_path / "wrong.py"
    file.write_text(text)
    with pytest.raises(SystemExit) as ended:
        main([file])
    message = str(ended.value)
    assert message.splitlines()[-1].startswith(last)
    assert f'File "{file}", line' in message
    assert "runwire/serving/" not in message
    assert "importlib" not in message
