"""An API key may have a budget for each day, which all its runs share."""

from datetime import UTC, datetime, timedelta

import pytest

from runwire import Client, RunwireError
from tests.fundamentals.conftest import KEYED_GATEWAY, THRIFTY_KEY
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.stack import Stack
from tests.support.waiting import wait_until

SPENT = {"prompt_tokens": 600, "completion_tokens": 100}


async def test_a_key_spends_its_budget_and_no_more(stack: Stack, client: Client, model: ModelServer) -> None:
    """The run that spends the last of it ends with what it has. Later requests are refused until midnight, UTC."""
    assert client is not None
    reply = action("count_inhabitants", city="Porto").text
    model.say(Say(text=reply, usage=SPENT), Say(text=reply, usage=SPENT), answer("231,800 people."))
    async with Client(stack.url_of(KEYED_GATEWAY), THRIFTY_KEY, patience_s=0) as thrifty:
        run = await thrifty.chat("How many people live in Porto?", agent="scripted")
        assert run.reason == "budget_exhausted"
        assert run.payload is not None
        assert "API key" in "".join(run.payload.warnings)
        assert len(model.ledger) == 2, "no further request to the model"

        async def is_refused() -> RunwireError | None:
            try:
                await thrifty.start("And in Lisbon?", agent="scripted")
            except RunwireError as error:
                return error
            return None

        refused = await wait_until(is_refused, what="the gateway knows what was spent")
    assert refused is not None
    assert (refused.status, refused.code) == (429, "key_budget_spent")
    now = datetime.now(UTC)
    midnight = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    assert refused.retry_after == pytest.approx((midnight - now).total_seconds(), abs=120)
