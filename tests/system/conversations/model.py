"""A provider that follows the newest script of a conversation, which has the scripts of earlier questions too."""

import json
from typing import Any

from tests.support.model_server import Say, Seen, answer
from tests.system.model import Plan, PlannedModel, stage_of


class NewestPlanModel(PlannedModel):
    """The provider on loopback. The turn is the number of its replies since the newest script."""

    def reply_to(self, seen: Seen) -> Say:
        """Read the newest script; without one, answer."""
        plan, turn = None, 0
        for message in seen.body.get("messages", []):
            if message["role"] == "assistant":
                turn += 1
            elif message["role"] == "user" and (found := _newest(message)) is not None:
                plan, turn = found, 0
        self.ledger.append(seen)
        return plan.reply(turn, stage_of(seen.body)) if plan is not None else answer("No script.")


def _newest(message: dict[str, Any]) -> Plan | None:
    """The last script in a message; several may have been merged into it."""
    text = json.dumps(message.get("content"), ensure_ascii=False)
    _, mark, last = text.rpartition("SCRIPT ")
    return Plan.read(mark + last)
