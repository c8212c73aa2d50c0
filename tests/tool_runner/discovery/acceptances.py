"""What an operator writes of accepted specifications, and what is said of those that wait."""

from contracts.tools.messages import AcceptedSpecs, RefusedTool, ToolSpec
from contracts.wire import keys
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from services.shared.tools.catalogue import refused_tools
from tests.support.catalogue import STREAM
from tests.support.waiting import wait_until


def bucket(bus: Bus) -> Bucket:
    return Bucket(bus, keys.CATALOGUE_BUCKET, attempts=3)


async def accepted(bus: Bus, name: str) -> list[str]:
    found = (await bucket(bus).get(keys.accepted_specs(name))).parsed(AcceptedSpecs)
    return found.digests if found else []


async def accept(bus: Bus, name: str, *specs: ToolSpec) -> None:
    """Accept specifications as an operator does: beside those that are."""
    digests = [*await accepted(bus, name), *(spec.digest() for spec in specs)]
    await bucket(bus).put(keys.accepted_specs(name), AcceptedSpecs(digests=digests))


async def refusals(bus: Bus, name: str) -> list[RefusedTool]:
    """What is said of a tool while it is refused."""
    return [each for each in await refused_tools(bus) if each.name == name]


async def refusal(bus: Bus, name: str) -> RefusedTool:
    """What is said of a tool that is refused, once it is."""
    return (await wait_until(lambda: refusals(bus, name), what=f"{name} is refused"))[0]


async def writes(bus: Bus) -> int:
    """The number of writes to the catalogue so far."""
    return int((await bus.api(f"STREAM.INFO.{STREAM}", {}))["state"]["last_seq"])
