"""Import a library without another library or a part of its own, which it uses if that is installed.

A checkout has the libraries of all services, so each process would load some that only another one needs.
"""

import importlib
import sys
from types import ModuleType


def import_without(library: str, unwanted: str) -> None:
    """Import `library` as if `unwanted` were not installed. Without effect when `library` was imported before."""
    kept = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == unwanted}
    for name in kept:
        del sys.modules[name]
    sys.modules[unwanted] = None  # type: ignore[assignment]  # The documented way to make an import fail.
    try:
        importlib.import_module(library)
    finally:
        del sys.modules[unwanted]
        sys.modules.update(kept)


def import_without_part(library: str, part: str, *names: str) -> None:
    """Import `library` with these names of its module `part` as None. Without effect when it was imported before.

    For a part that the library imports whether it is used or not.
    """
    if library in sys.modules:
        return
    full_name = f"{library}.{part}"
    sys.modules[full_name] = ModuleType(full_name)
    vars(sys.modules[full_name]).update(dict.fromkeys(names))
    try:
        importlib.import_module(library)
    finally:
        del sys.modules[full_name]
