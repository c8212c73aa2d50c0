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

# With Python's default of 700 objects, garbage collection takes an eighth of the time of imports (see `service`).
gc.set_threshold(20_000, 20, 50)
