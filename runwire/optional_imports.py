"""Import a library without another library, which it uses if that is installed.

A checkout has the libraries of all services, so each process would load some that only another one needs.
"""

import importlib
import sys


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
