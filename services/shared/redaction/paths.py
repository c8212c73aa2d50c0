"""Dotted paths: how a place inside a tool's result is named (`items[0].blob`).

A key that would make the path ambiguous is quoted as in JSON: `files["report.pdf"].blob`. The result as a whole is `$`.
"""

import json
import re

Path = tuple[str | int, ...]

ROOT = "$"
_PLAIN = re.compile(r'[^.\[\]"$\s\x00-\x1f][^.\[\]"\x00-\x1f]*')


def dotted(path: Path) -> str:
    """Return the one name of a path."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step)}]"
    return text or ROOT
