"""NATS: one connection per service, streams, buckets and consumers over it, and fairness among tenants.

Knows subjects and streams, not runs or tools.
"""

import services.runtime  # noqa: F401, before anything else imports nats-py
