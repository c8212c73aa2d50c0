"""Nobody can take all places, and whoever comes next finds some."""

import pytest

from services.gateway.settings import GatewaySettings
from services.messaging.tenants.shares import Shares
from services.planner.settings import PlannerSettings


def _fill(shares: Shares, tenant: str) -> int:
    """Take as many places as there are for a tenant; how many."""
    count = 0
    while shares.take(tenant):
        count += 1
    return count


@pytest.mark.parametrize("places", [8, 16, 2048])
def test_a_newcomer_finds_places_however_many_came_before(places: int) -> None:
    """Those before it took all that they could, one after another."""
    shares = Shares(places)
    taken = [_fill(shares, f"tenant-{number}") for number in range(2)]
    assert taken[0] == places // 2 + 1
    assert all(taken)
    assert _fill(shares, "newcomer") > 0


def test_what_is_given_back_can_be_taken() -> None:
    """By whoever holds little enough; at last all places are free again."""
    shares = Shares(3)
    for _ in range(5):
        count = _fill(shares, "a")
        assert count == 2
        for _ in range(count):
            shares.give_back("a")
    assert _fill(Shares(1), "alone") == 1


def test_the_open_runs_of_one_tenant_fit_into_its_share_of_one_planner() -> None:
    """By default: so a tenant at its limit takes no place of another."""
    planner, limit = PlannerSettings(), GatewaySettings().max_open_runs
    assert _fill(Shares(planner.planner_request_slots), "a") > limit
    assert _fill(Shares(planner.planner_slots), "a") > limit
