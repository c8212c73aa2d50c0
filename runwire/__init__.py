"""Runwire's SDK: `tool`, `ToolContext` and `ToolResponse` to write tools, `Client` to start and follow runs.

`runwire.events`, `runwire.errors` and `runwire.testing` are public too. docs/sdk.md lists what stays stable.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runwire.errors import RunwireError, ToolError

if TYPE_CHECKING:
    from runwire.client import Client
    from runwire.tools import Tool, ToolContext, ToolResponse, tool

_ROOT = Path(__file__).resolve().parents[1]
if (_ROOT / "hatch_build.py").is_file():
    # In a checkout `contracts` lies beside this package. Another one on PYTHONPATH would be found first.
    sys.path.insert(0, str(_ROOT))
    __import__("contracts")
    sys.path.remove(str(_ROOT))

__all__ = ["Client", "RunwireError", "Tool", "ToolContext", "ToolError", "ToolResponse", "tool"]


if not TYPE_CHECKING:  # With `__getattr__` in sight a type checker would accept any name.

    def __getattr__(name: str) -> object:
        """Load each name when it is first used: a tool needs no HTTP library, the launcher no pydantic."""
        if name == "Client":
            from runwire.client import Client  # noqa: PLC0415, see above

            return Client
        if name in __all__:
            from runwire import tools  # noqa: PLC0415, see above

            return getattr(tools, name)
        raise AttributeError(f"module 'runwire' has no attribute {name!r}")
