"""Schedules and webhooks in a storm: one-off ones that are due in seconds, and deliveries that come twice."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from datetime import UTC, datetime

from contracts.wire import names, subjects
from tests.support.waiting import wait_until
from tests.system.client import Client
from tests.system.tasks.evidence import Fire, Tasks
from tests.system.tasks.model import Script

_HOOK = "hook"
_FIRE_LIMIT_S = 60


async def one_off(client: Client, found: Tasks, name: str, *, in_s: int, missed: str = "skip") -> None:
    """Schedule a run for one time, some seconds ahead. An outage may let it pass; then it is refused."""
    at = (int(time.time()) + in_s) * 1000
    due = datetime.fromtimestamp(at / 1000, UTC).isoformat()
    body = {"run": {"query": Script(says=f"due {name}").query}, "at": due, "missed": missed}
    answer = await client.surely("POST", "/v1/schedules", json=body, headers={"Idempotency-Key": name})
    if answer.status_code == 422:
        return
    assert answer.status_code in {200, 201}, answer.text
    schedule = str(answer.json()["schedule_id"])
    found.fires.append(Fire(schedule, names.started_run_id(subjects.DEFAULT_TENANT, schedule, at), at))


async def make_webhook(client: Client, found: Tasks) -> None:
    body = {"run": {"query": Script(says="heard").query}, "webhook": True}
    answer = await client.surely("POST", "/v1/schedules", json=body, headers={"Idempotency-Key": _HOOK})
    assert answer.status_code in {200, 201}, answer.text
    found.webhook = (str(answer.json()["schedule_id"]), str(answer.json()["secret"]))


async def deliver(client: Client, found: Tasks, delivery: str) -> None:
    """Deliver something twice at once, as a sender does that got no answer in time."""
    schedule, secret = found.webhook
    body = json.dumps({"delivery": delivery})
    at = str(int(time.time()))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = base64.b64encode(hmac.digest(key, f"{delivery}.{at}.{body}".encode(), hashlib.sha256)).decode()
    headers = {"webhook-id": delivery, "webhook-timestamp": at, "webhook-signature": f"v1,{signature}"}

    async def once() -> None:
        answer = await client.surely("POST", f"/v1/hooks/{schedule}", content=body, headers=headers)
        assert answer.status_code in {200, 202}, answer.text
        found.deliveries.append((delivery, str(answer.json()["run_id"])))

    await asyncio.gather(once(), once())
    found.fires.append(Fire(schedule, names.started_run_id(subjects.DEFAULT_TENANT, schedule, delivery)))


async def until_fired(client: Client, found: Tasks) -> None:
    """Wait until every run that is due has ended; the rules say which are missing."""

    async def ended() -> bool:
        return all([await has_ended(client, fire.run) for fire in found.fires])

    try:
        await wait_until(ended, timeout=_FIRE_LIMIT_S, what="what is due has run")
    except AssertionError as error:
        found.hung.append(str(error))


async def has_ended(client: Client, run: str) -> bool:
    """Whether a run has begun, and ended."""
    answer = await client.surely("GET", f"/v1/runs/{run}")
    return answer.status_code == 200 and answer.json()["ended_at"] is not None
