"""Dotted paths: the names of places in a tool's result (`items[0].blob`).

A key that would make the path ambiguous is quoted as in JSON: `files["report.pdf"].blob`. The complete result is `$`.
"""

import json
import re

Path = tuple[str | int, ...]

ROOT = "$"
_PLAIN = re.compile(r'[^.\[\]"$\s\x00-\x1f][^.\[\]"\x00-\x1f]*')


def dotted(path: Path) -> str:
    """Return the canonical name of a path."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step)}]"
    return text or ROOT
