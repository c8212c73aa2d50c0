"""Keep Python's garbage collector from stopping a service for a tenth of a second.

A service allocates much and leaves few cycles behind: reference counts free nearly everything. By default the collector looks every 700
allocations, and every now and then at all objects of the process: at a busy planner that took a quarter of its CPU, in pauses above 100 ms
in which no token of any run moved.
"""

import gc

_YOUNG, _MIDDLE, _OLD = 20_000, 20, 50
"""Net allocations before the youngest generation is looked at, and how often each generation before the next one."""


def tune() -> None:
    """Leave what was imported alone from now on, and look seldom at the rest. Call it once a service has everything that it needs."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _MIDDLE, _OLD)
