"""Create and update the streams, buckets and consumers of a deployment: `python -m services.messaging.provisioner`.

Rule 1: it runs once before the services, and again before those of a new version. Services create no stream: they wait
for it. Running it twice, or while services of an earlier version work, does no harm.
Rule 2: it ends with 0 when everything is as it must be; with 78 when something exists that cannot be changed in place;
with 1 when NATS or its JetStream was not available in time. The last line on stderr is the reason.
"""

import asyncio
import sys

import structlog

from services.messaging.connection import Bus
from services.messaging.errors import BusError, Misconfigured
from services.messaging.nats_link import NatsLink
from services.messaging.streams import provision
from services.runtime.service import configure_logging
from services.runtime.settings import BusSettings, misconfigured, read_settings

logger = structlog.get_logger(__name__)

_WAIT_S = 60.0
"""Seconds to wait for NATS and its JetStream."""


async def provision_once(settings: BusSettings, wait_s: float = _WAIT_S) -> None:
    """Connect, provision, and disconnect. Raises Misconfigured, and TimeoutError with the reason."""
    link = NatsLink(Bus("provisioner", settings))
    try:
        async with asyncio.timeout(wait_s):
            await link.connect()
            await provision(link.bus)
    except TimeoutError as error:
        problems = "; ".join(link.problems()) or "JetStream did not answer: is it on, for this account too?"
        raise TimeoutError(f"not provisioned within {wait_s:g} s: {problems}") from error
    finally:
        await link.leave()
    logger.info("provisioned")


def main() -> None:
    """Provision. Raises SystemExit when that has failed."""
    settings = read_settings(BusSettings)
    configure_logging("provisioner", settings)
    try:
        asyncio.run(provision_once(settings))
    except Misconfigured as error:
        raise misconfigured(str(error)) from None
    except (BusError, TimeoutError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
