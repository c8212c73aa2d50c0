"""A process: its settings, logs, health over HTTP, and its life from start to stop. Knows no runs or tools.

Every service imports this package first. So a measure is here that makes all later imports cheaper.
"""

import gc

# With Python's default of 700 objects, garbage collection takes an eighth of the time of imports (see `service`).
gc.set_threshold(20_000, 20, 50)
