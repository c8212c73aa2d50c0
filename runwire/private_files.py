"""Files that only their owner can read."""

import os
from pathlib import Path


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner can read, also in place of one with other permissions."""
    fresh = file.with_name(f"{file.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as opened:
        opened.write(text)
    fresh.replace(file)
