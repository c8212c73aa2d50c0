"""Load tools from Python files."""

import asyncio
import concurrent.futures
import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from contracts.wire import names
from runwire.errors import ToolsNotLoaded
from runwire.tools import Tool

_NEEDED_PACKAGES = {"runwire", names.__name__.partition(".")[0]}
"""In a checkout the contracts are a package of their own; in the wheel they are inside `runwire`."""
_CALLERS = (
    "<frozen importlib",
    str(Path(__file__).parents[1]),
    *(str(Path(module.__file__ or "").parent) for module in (asyncio, concurrent.futures)),
)
"""Where what calls the author's code is: Runwire and the event loop."""

_FOLDERS: list[str] = []
"""First on the path, the first file's first: its name stays its own, also in processes that its tools start."""


def load_tools(path: str | Path) -> list[Tool[..., Any]]:
    """Run a Python file and return its tools, by name.

    The file may import modules of its folder, and is a module of this folder itself, under its own name where that is
    free: processes that its tools start can then import it, as pools with `spawn` and `forkserver` do.

    Raises ToolsNotLoaded for what is missing or not a Python file, has no tool, or would hide a package that this
    process needs.
    What the file itself raises passes through, except for SystemExit.
    """
    file = Path(path).expanduser().resolve()
    if not file.exists():
        raise ToolsNotLoaded(f"there is no file {path}")
    if file.suffix != ".py" or not file.is_file():
        raise ToolsNotLoaded(f"{path} is not a Python file")
    _refuse_shadows(file)
    module = _run(file)
    tools = {id(value): value for value in vars(module).values() if isinstance(value, Tool)}
    if not tools:
        raise ToolsNotLoaded(f"{path} has no tool: put @tool above a function")
    return unique(tools.values())


def unique(tools: Iterable[Tool[..., Any]]) -> list[Tool[..., Any]]:
    """Return tools sorted by name. Raises ToolsNotLoaded when two have the same name."""
    named: dict[str, Tool[..., Any]] = {}
    for tool in tools:
        if named.setdefault(tool.name, tool) is not tool:
            raise ToolsNotLoaded(f"two tools are called {tool.name!r}: give one of them another name")
    return [named[name] for name in sorted(named)]


def authors_trace(error: BaseException) -> str:
    """Return a traceback without the frames that call the author's file, unless the error is not of it."""
    trace = traceback.TracebackException.from_exception(error)
    frames = [frame for frame in trace.stack if not frame.filename.startswith(_CALLERS)]
    is_authors = frames or isinstance(error, SyntaxError)
    trace.stack = traceback.StackSummary.from_list(frames if is_authors else trace.stack)
    return "".join(trace.format()).rstrip()


def remarks(tools: Iterable[Tool[..., Any]]) -> list[str]:
    """Return what a model cannot know of tools, each with the file and line to mend."""
    found = []
    for tool in tools:
        code = inspect.unwrap(tool).__code__
        where = f"{code.co_filename}:{code.co_firstlineno}: {tool.name}"
        if not tool.spec.description.strip():
            found.append(f"{where} has no description for the model: give it a docstring, or desc=…")
        properties = tool.spec.input_schema.get("properties", {})
        if untyped := [name for name, part in properties.items() if not part.keys() - {"title", "default"}]:
            found.append(f"{where}: the model does not know what to pass as {', '.join(untyped)}: annotate its type")
    return found


def _refuse_shadows(file: Path) -> None:
    """The file's folder comes first on the path: a module in it would be imported instead of ours of that name."""
    own = Path(__file__).resolve().parents[2]
    for name in sorted(_NEEDED_PACKAGES):
        for candidate in (file.parent / f"{name}.py", file.parent / name):
            # A folder without Python files is not imported.
            is_package = candidate.is_dir() and any(candidate.glob("*.py"))
            if (candidate.is_file() or is_package) and candidate.parent != own:
                remedy = "rename it, or serve a file from another folder"
                raise ToolsNotLoaded(f"{candidate} would hide Runwire's own package {name!r}: {remedy}")


def _run(file: Path) -> ModuleType:
    if str(file.parent) not in sys.path:
        sys.path.insert(len(_FOLDERS), str(file.parent))
        _FOLDERS.append(str(file.parent))
    name = file.stem
    found = importlib.util.find_spec(name) if name.isidentifier() and name not in sys.modules else None
    if found is None or found.origin != str(file):
        name = f"runwire_served_{name}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ToolsNotLoaded(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    # Annotations are looked up in the module by its name, so it must be there while the file runs.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        del sys.modules[name]
        raise ToolsNotLoaded(f"{file} ended with sys.exit({error.code!r}) while it was loaded") from error
    except BaseException:
        del sys.modules[name]
        raise
    return module
