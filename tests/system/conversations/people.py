"""People who decide about pauses. Every fifth decision is sent twice, and every tenth once more under another key."""

import asyncio
import random
from typing import Any

from tests.system.client import Client
from tests.system.conversations.evidence import Conversations, Decision

_DECIDED_TWICE, _DECIDED_AGAIN = 0.2, 0.1


async def decide(client: Client, found: Conversations, pause: dict[str, Any], rng: random.Random) -> None:
    """Decide about a pause, unless somebody has."""
    key = f"decision-{pause['token']}"
    if any(each.key == key for each in found.decisions):
        return
    body = {"pause_id": pause["pause_id"], "token": pause["token"], **_chosen(rng, pause)}
    keys = [key]
    if rng.random() < _DECIDED_TWICE:
        keys.append(key)
    if rng.random() < _DECIDED_AGAIN:
        keys.append(f"{key}-again")
    decisions = [Decision(pause["run_id"], pause["pause_id"], body["decision"], each) for each in keys]
    found.decisions += decisions
    await asyncio.gather(*(_send(client, each, body) for each in decisions))


def _chosen(rng: random.Random, pause: dict[str, Any]) -> dict[str, Any]:
    """Fields of the body of `resume`."""
    if pause["reason"] == "input":
        return {"decision": "answer", "input": {"colour": rng.choice(["red", "green"])}}
    if pause["reason"] == "approval":
        chosen = rng.choice(["approve", "approve", "approve", "edit", "reject"])
        return {"decision": chosen, **({"args": {"ms": 20}} if chosen == "edit" else {})}
    if pause["input_schema"] is None or rng.random() < 0.5:  # Held results take no answer.
        return {"decision": rng.choice(["approve", "approve", "reject"])}
    approve = rng.random() < 0.75
    return {"decision": "answer", "input": {"approve": approve, "retain_turn": rng.random() < 0.3}}


async def _send(client: Client, decision: Decision, body: dict[str, Any]) -> None:
    """Send a decision until its answer is known."""
    while decision.status in {0, 202}:
        path, headers = f"/v1/runs/{decision.run}/resume", {"Idempotency-Key": decision.key}
        answer = await client.surely("POST", path, json=body, headers=headers)
        decision.status = answer.status_code
    decision.code = answer.json().get("code", "") if decision.status != 200 else ""
    assert decision.status in {200, 409}, (decision, body, answer.text)
