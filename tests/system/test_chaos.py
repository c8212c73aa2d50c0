"""An accepted run ends exactly once, whatever is killed, frozen or restarted meanwhile, and its clients see what is stored.

Set CHAOS_SEED to repeat a session's choices.
"""

import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nats_server import NatsServer
from tests.support.stack import Stack
from tests.system.chaos import Storm, hold, judged
from tests.system.conftest import TOOLS, stack_env
from tests.system.model import PlannedModel
from tests.system.summary import summary

pytestmark = [pytest.mark.system, pytest.mark.xdist_group("chaos")]


def _seed() -> int:
    return int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(1 << 32))


@pytest.fixture(scope="module")
def stack(server: NatsServer, model: PlannedModel, ledger_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """Two copies of everything."""
    folder = tmp_path_factory.mktemp("stack")
    with Stack(server.url, folder, env=stack_env(model, ledger_file), tools=TOOLS, gateways=2) as stack:
        yield stack


@pytest.mark.timeout(150)
@pytest.mark.usefixtures("_logs")
async def test_a_short_storm_breaks_no_promise(stack: Stack, server: NatsServer, ledger_file: Path) -> None:
    """Twenty runs, ten blows on processes and one on the server."""
    await _survive(Storm(runs=20, blows=11, server_kills=1, seed=_seed()), stack, server, ledger_file)


@pytest.mark.chaos
@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("_logs")
async def test_a_long_storm_breaks_no_promise(stack: Stack, server: NatsServer, ledger_file: Path) -> None:
    """At least two hundred runs, more than a hundred blows, five of them on the server."""
    await _survive(Storm(runs=200, blows=150, server_kills=5, seed=_seed()), stack, server, ledger_file)


async def _survive(storm: Storm, stack: Stack, server: NatsServer, ledger_file: Path) -> None:
    session = await hold(storm, stack, server)
    found, complaints = await judged(session, ledger_file)
    report = summary(session, found, complaints)
    sys.stdout.write(report + "\n")
    assert not complaints, report
