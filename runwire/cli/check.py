"""What a check of `runwire doctor` found."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Check:
    """One finding."""

    name: str
    status: Literal["ok", "warning", "failed"]
    finding: str
    mend: str = ""
