"""A process: its settings, logs, health over HTTP, and its life from start to stop. Knows no runs or tools.

Every service imports this package first. So measures are here that make all later imports cheaper.
"""

import gc
import sys

import runwire.nats_client  # noqa: F401, before anything else imports nats-py

if "rich" not in sys.modules:  # structlog does without it, for tracebacks that we print without colours: 3 MB.
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog  # noqa: F401

    del sys.modules["rich"]

# A service allocates much and creates few cycles: reference counts free nearly everything. By default the collector
# runs every 700 allocations, and sometimes over all objects of the process. That takes an eighth of the time of
# imports, and at a busy planner it took a quarter of its CPU, in pauses above 100 ms.
gc.set_threshold(20_000, 20, 50)
