"""A process: its settings, logs, health over HTTP, and its life from start to stop. Knows no runs or tools.

Every service imports this package first, so what makes all later imports cheaper stands here.
"""

import gc

from runwire.optional_imports import import_without

__all__ = ["import_without"]

gc.set_threshold(20_000, 20, 50)
"""While modules are imported, Python's default of 700 takes an eighth of the time. `gc_tuning` says more."""
import_without("structlog", "rich")
"""rich colours tracebacks: 25 ms and 3 MB in every service of a checkout; the images do not have it."""
