"""NATS: one connection per service, and reading and writing streams over it.

Knows subjects and streams, not runs or tools.
"""

import services.runtime  # noqa: F401, before anything else imports nats-py
