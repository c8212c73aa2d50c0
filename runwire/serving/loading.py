"""Read tools from Python files."""

import hashlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from runwire.tools.decorator import Tool

_OURS = ("contracts", "runwire", "services")


class ToolsNotLoaded(ValueError):
    """A file cannot be served: it says why, in one sentence."""


def load_tools(path: str | Path) -> list[Tool[..., Any]]:
    """Run a Python file and return its tools, by name.

    The file's folder is importable, so it may be split into modules.

    Raises ToolsNotLoaded for what is no such file, holds no tool, or would hide a package that this process needs. What
    the file itself raises passes through.
    """
    file = Path(path).expanduser().resolve()
    if file.suffix != ".py" or not file.is_file():
        raise ToolsNotLoaded(f"{path} is not a Python file")
    _refuse_shadows(file)
    module = _run(file)
    tools = {id(value): value for value in vars(module).values() if isinstance(value, Tool)}
    if not tools:
        raise ToolsNotLoaded(f"{path} holds no tool: put @tool above a function")
    return unique(tools.values())


def unique(tools: Iterable[Tool[..., Any]]) -> list[Tool[..., Any]]:
    """Return tools sorted by name. Raises ToolsNotLoaded when two bear the same."""
    named: dict[str, Tool[..., Any]] = {}
    for tool in tools:
        if named.setdefault(tool.name, tool) is not tool:
            raise ToolsNotLoaded(f"two tools are called {tool.name!r}: give one of them another name")
    return [named[name] for name in sorted(named)]


def _refuse_shadows(file: Path) -> None:
    """A file or package of one of our names, first on the path, would be imported in place of ours."""
    own = Path(__file__).resolve().parents[2]
    for name in _OURS:
        for candidate in (file.parent / f"{name}.py", file.parent / name):
            # A folder without Python in it is no package that anybody would import.
            is_package = candidate.is_dir() and any(candidate.glob("*.py"))
            if (candidate.is_file() or is_package) and candidate.parent != own:
                raise ToolsNotLoaded(
                    f"{candidate} would hide Runwire's own package {name!r}: rename it, or serve a file from another folder"
                )


def _run(file: Path) -> ModuleType:
    name = f"runwire_served_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ToolsNotLoaded(f"{file} cannot be imported")
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    module = importlib.util.module_from_spec(spec)
    # Annotations are looked up in the module by its name, so it must be there while the file runs.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
