"""A process: its settings, logs, health over HTTP, and its life from start to stop. Knows no runs or tools.

Every service imports this package first. So two measures are here that make all later imports cheaper.
"""

import gc

from contracts.wire.optional_imports import import_without, import_without_part

__all__ = ["import_without", "import_without_part"]

# With Python's default of 700 objects, garbage collection takes an eighth of the time of imports (see `gc_tuning`).
gc.set_threshold(20_000, 20, 50)
# rich colours tracebacks: 25 ms and 3 MB in every service of a checkout. The container images do not have it.
import_without("structlog", "rich")
