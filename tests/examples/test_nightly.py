"""The nightly run: short, and one schedule however often it is started."""

import sys

from tests.examples.conftest import EXAMPLES, Start
from tests.support.gateways import serving
from tests.support.nats_server import NatsServer

PROGRAM = EXAMPLES / "nightly" / "nightly.py"


async def test_it_adds_one_schedule(nats_server: NatsServer, start: Start) -> None:
    """And prints the next three nights."""
    assert len(PROGRAM.read_text().splitlines()) < 30
    async with serving(nats_server.url) as served:
        for _ in range(2):
            program = await start([sys.executable, str(PROGRAM)], nats_server, RUNWIRE_URL=served.url)
            assert await program.ended() == 0, "\n".join(program.complaints)
            assert program.lines[0].count(":00+0") == 3
        listed = (await served.http.get("/v1/schedules")).json()["schedules"]
        assert [each["run"]["query"].startswith("Which region") for each in listed].count(True) == 1
