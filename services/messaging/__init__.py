"""NATS: one connection per service, and reading and writing streams over it.

Knows subjects and streams, not runs or tools.
"""

from services.runtime import import_without

import_without("nats", "aiohttp")
"""nats-py would speak over WebSockets with aiohttp, which no service does: 90 ms and 8 MB."""
