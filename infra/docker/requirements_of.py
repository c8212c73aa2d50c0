"""Print what an image needs, one requirement per line: the input of its `pip install`.

Usage: python requirements_of.py [EXTRA …]. Without an extra: what the SDK and the command line need. Extras of
pyproject.toml that name other extras of it are followed.
"""

import re
import sys
import tomllib
from pathlib import Path


def requirements_of(names: list[str], project: dict[str, object]) -> list[str]:
    """Return the requirements of extras, followed into each other; without extras, those of the project itself."""
    extras, waiting, seen = project["optional-dependencies"], list(names), set()
    found = set() if names else set(project["dependencies"])
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
