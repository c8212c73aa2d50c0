"""An accepted run ends exactly once, whatever is killed, frozen or restarted, and clients receive what is stored."""

import pytest

from tests.support.samples import first_seed
from tests.system.run_storm import RunStorm
from tests.system.storm import survive
from tests.system.system import System

pytestmark = [pytest.mark.system]


@pytest.mark.timeout(240)
async def test_a_short_storm_breaks_no_promise(storm_system: System) -> None:
    """Twenty runs, ten blows on processes and one on the server."""
    await survive(RunStorm(storm_system, runs=20, blows=11, server_kills=1, seed=first_seed()))


@pytest.mark.chaos
@pytest.mark.timeout(1500)
async def test_a_long_storm_breaks_no_promise(storm_system: System) -> None:
    """At least two hundred runs, more than a hundred blows, five of them on the server."""
    await survive(RunStorm(storm_system, runs=200, blows=150, server_kills=5, seed=first_seed()))
