"""NATS: one connection per service, and reading and writing streams over it.

Knows subjects and streams, not runs or tools.
"""

from services.runtime import import_without

# nats-py needs aiohttp for WebSockets only, which no service uses: 90 ms and 8 MB.
import_without("nats", "aiohttp")
