"""No tenant can take all slots, and the next tenant finds free ones."""

import pytest

from services.gateway.settings import GatewaySettings
from services.messaging.pull_consumer import Shares
from services.planner.settings import PlannerSettings


def _fill(shares: Shares, tenant: str) -> int:
    """Take as many slots as a tenant may have, and return how many."""
    count = 0
    while shares.take(tenant):
        count += 1
    return count


@pytest.mark.parametrize("slots", [8, 16, 2048])
def test_the_next_tenant_finds_free_slots(slots: int) -> None:
    """Those before it took all that they could, one after another."""
    shares = Shares(slots)
    taken = [_fill(shares, f"tenant-{number}") for number in range(2)]
    assert taken[0] == slots // 2 + 1
    assert all(taken)
    assert _fill(shares, "newcomer") > 0


def test_the_open_runs_of_one_tenant_fit_into_its_share_of_one_planner() -> None:
    """By default: so a tenant at its limit takes no slot of another."""
    planner, limit = PlannerSettings(), GatewaySettings().max_open_runs
    assert _fill(Shares(planner.planner_request_slots), "a") > limit
    assert _fill(Shares(planner.planner_slots), "a") > limit
