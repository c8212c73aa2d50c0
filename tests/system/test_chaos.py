"""An accepted run ends exactly once, whatever is killed, frozen or restarted, and clients receive what is stored.

Set TEST_SEED to repeat a session's choices.
"""

import os
import random
import sys

import pytest

from tests.system.chaos import Storm, hold, judged
from tests.system.summary import summary
from tests.system.system import System

pytestmark = [pytest.mark.system]


def _seed() -> int:
    return int(os.environ.get("TEST_SEED") or random.SystemRandom().randrange(1 << 32))


@pytest.mark.timeout(240)
async def test_a_short_storm_breaks_no_promise(storm_system: System) -> None:
    """Twenty runs, ten blows on processes and one on the server."""
    await _survive(Storm(runs=20, blows=11, server_kills=1, seed=_seed()), storm_system)


@pytest.mark.chaos
@pytest.mark.timeout(1500)
async def test_a_long_storm_breaks_no_promise(storm_system: System) -> None:
    """At least two hundred runs, more than a hundred blows, five of them on the server."""
    await _survive(Storm(runs=200, blows=150, server_kills=5, seed=_seed()), storm_system)


async def _survive(storm: Storm, system: System) -> None:
    with system.stack.showing_logs():
        session = await hold(storm, system)
        found, complaints = await judged(session)
        report = summary(session, found, complaints)
        sys.stdout.write(report + "\n")
        assert not complaints, report
