"""In a session one run at a time has the turn, and nothing happens without its approval, whatever is killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.samples import first_seed
from tests.system.conversations.model import NewestPlanModel
from tests.system.conversations.storm import TalkStorm
from tests.system.storm import survive
from tests.system.system import System, planned

pytestmark = [pytest.mark.system]
_TOOLS = Path(__file__).parent / "tools.py"


@pytest.fixture(scope="module")
def conversation_system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """Two copies of everything, with tools that wait for people."""
    with planned(tmp_path_factory.mktemp("talk"), gateways=2, tools=_TOOLS, model=NewestPlanModel) as system:
        yield system
        assert system.nats.violations() == []


@pytest.mark.timeout(300)
async def test_a_short_storm_breaks_no_promise(conversation_system: System) -> None:
    """Twenty-four requests in six sessions, eight blows on processes and one on the server."""
    await survive(TalkStorm(conversation_system, runs=24, blows=9, server_kills=1, seed=first_seed(), sessions=6))


@pytest.mark.chaos
@pytest.mark.timeout(1800)
async def test_a_long_storm_breaks_no_promise(conversation_system: System) -> None:
    """Two hundred requests in twenty-five sessions, a hundred blows and more, five of them on the server."""
    await survive(TalkStorm(conversation_system, runs=200, blows=120, server_kills=5, seed=first_seed(), sessions=25))
