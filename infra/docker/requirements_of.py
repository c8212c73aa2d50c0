"""Print what an extra of pyproject.toml needs, one requirement per line: the input of an image's `pip install`.

Usage: python requirements_of.py EXTRA [EXTRA …]. Extras that name other extras of this project are followed.
"""

import re
import sys
import tomllib
from pathlib import Path


def requirements_of(names: list[str], project: dict[str, object]) -> list[str]:
    """Return the requirements of extras, followed into each other, and those of the project itself."""
    extras, found, waiting, seen = project["optional-dependencies"], set(project["dependencies"]), list(names), set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for requirement in extras[name]:
            own = re.fullmatch(r"runwire\[([a-z, -]+)\]", requirement)
            if own:
                waiting += [part.strip() for part in own[1].split(",")]
            else:
                found.add(requirement)
    return sorted(found)


if __name__ == "__main__":
    manifest = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
    print("\n".join(requirements_of(sys.argv[1:], manifest["project"])))
