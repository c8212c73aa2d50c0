"""The one place from which `runwire` takes the contracts.

The wheel carries them inside, as `runwire._contracts`: a top-level `contracts` of ours would collide with packages of
that name that authors have. In a checkout there is no copy, and `runwire` and the services share the same classes.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING or find_spec("runwire._contracts") is None:
    from contracts import (
        actions,
        artifacts,
        events,
        faults,
        health,
        ids,
        images,
        inbox,
        limits,
        names,
        payload,
        records,
        runs,
        subjects,
        tools,
    )
else:
    from runwire._contracts import (
        actions,
        artifacts,
        events,
        faults,
        health,
        ids,
        images,
        inbox,
        limits,
        names,
        payload,
        records,
        runs,
        subjects,
        tools,
    )

__all__ = [
    "actions",
    "artifacts",
    "events",
    "faults",
    "health",
    "ids",
    "images",
    "inbox",
    "limits",
    "names",
    "payload",
    "records",
    "runs",
    "subjects",
    "tools",
]
