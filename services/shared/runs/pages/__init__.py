"""Pages of an application: where a user stands, and what the model of a chat turn may know and do there.

The gateway and the planner read the same registries. A plug-in imports `PageType`, `PayloadType`, `Read`, `Shown` from
here (docs/pages.md).
"""

from services.shared.runs.pages.page_types import PageType, Part, PayloadType, Read, Shown, Tab

__all__ = ["PageType", "Part", "PayloadType", "Read", "Shown", "Tab"]
