"""Deliveries of webhooks: check the signature, then request a run as a caller does.

Signatures are those of Standard Webhooks: `webhook-signature` holds `v1,<base64>` of the HMAC-SHA256 of
`<webhook-id>.<webhook-timestamp>.<body>`, with the webhook's secret.

Rule 1: an unknown webhook, a wrong signature and an old timestamp get the same answer, after the same work.
Rule 2: nothing but the secret is read before the signature has been checked.
Rule 3: the id of the run follows from `webhook-id`, so a delivery that is repeated starts no second run.
"""

import base64
import hashlib
import hmac
import re
import secrets
from typing import Any

from fastapi import Request
from pydantic import RootModel

from contracts.runs.requests import KeyBudget
from contracts.sessions.schedules import MAX_WEBHOOK_BYTES, WEBHOOK_KEY_PREFIX, Schedule, Webhook
from contracts.wire import keys
from contracts.wire.names import InvalidName, new_id, own_session_id, started_run_id, unix_ms
from services.gateway.auth.caller import Caller
from services.gateway.edge.request_body import BodyLimit, parse, read_body
from services.gateway.errors import NotFound, TryAgain
from services.gateway.parts import Parts
from services.gateway.runs.accept import accept_made
from services.messaging.kv import Bucket

MAX_AGE_S = 300
SIGNING_HEADERS = ("webhook-id", "webhook-timestamp", "webhook-signature")
_VISIBLE = re.compile(r"[\x21-\x7e]{1,255}", re.ASCII)
_ENDS_WITH_NUMBER = re.compile(r"\.[0-9]+\Z", re.ASCII)
"""Such an id could be the id, and the end of it the timestamp, of another signed delivery: a dot joins them."""
_TIMESTAMP = re.compile(r"[0-9]{1,12}", re.ASCII)


def new_secret() -> str:
    """Return a secret of 32 random bytes, in the form of Standard Webhooks."""
    return WEBHOOK_KEY_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


_UNKNOWN = Webhook(tenant="", secret=new_secret())
"""Checked in place of a webhook that does not exist."""


class _Json(RootModel[Any]):
    """Any JSON."""


async def deliver(parts: Parts, request: Request, webhook_id: str) -> tuple[str, str]:
    """Return the run and the session of a delivery.

    Raises NotFound, BodyTooLarge, BodyTooSlow, InvalidInput, KeyBudgetSpent, TooManyRuns and TryAgain.
    """
    bucket = Bucket(parts.bus, keys.RUNS_BUCKET, attempts=1)
    if parts.deliveries.locked():
        raise TryAgain("Too many deliveries are being checked.")
    async with parts.deliveries:
        body = await read_body(request, BodyLimit(MAX_WEBHOOK_BYTES, drained_bytes=MAX_WEBHOOK_BYTES))
        try:
            found = (await bucket.get(keys.webhook_entry(webhook_id))).parsed(Webhook)
        except InvalidName:
            found = None
        webhook = found or _UNKNOWN
        given = [request.headers.getlist(name) for name in SIGNING_HEADERS]
        delivery, timestamp, signatures = [values[0] if len(values) == 1 else "" for values in given]
        if not is_signed(webhook.secret, delivery, timestamp, signatures, body) or webhook is _UNKNOWN:
            raise NotFound
    schedule = (await bucket.get_from_leader(keys.schedule_entry(webhook.tenant, webhook_id))).parsed(Schedule)
    if schedule is None:
        raise NotFound
    run = started_run_id(schedule.tenant, webhook_id, delivery)
    requested = schedule.request.model_copy(
        update={
            "run_id": run,
            "requested_at": unix_ms(),
            "trace_id": new_id(),
            "llm_context": {**schedule.request.llm_context, "webhook": parse(_Json, body).root},
        }
    )
    budget = requested.key_budget or KeyBudget()
    caller = Caller(
        tenant=schedule.tenant,
        key_id=requested.key_id,
        max_runs=schedule.max_runs,
        max_tokens_per_day=budget.max_tokens,
        max_cost_usd_per_day=budget.max_cost_usd,
    )
    await accept_made(parts, caller, requested)
    return run, requested.session_id or own_session_id(run)


def is_signed(secret: str, delivery: str, timestamp: str, signatures: str, body: bytes) -> bool:
    """Return whether one of the signatures of a delivery, which must not be old, was made with the secret."""
    signed = f"{delivery}.{timestamp}.".encode("latin-1", "replace") + body
    digest = hmac.digest(base64.b64decode(secret.removeprefix(WEBHOOK_KEY_PREFIX)), signed, hashlib.sha256)
    wanted = b"v1," + base64.b64encode(digest)
    matches = [hmac.compare_digest(each.encode("latin-1", "replace"), wanted) for each in signatures.split(" ")[:16]]
    is_recent = _TIMESTAMP.fullmatch(timestamp) is not None and abs(unix_ms() / 1000 - int(timestamp)) <= MAX_AGE_S
    is_id = _VISIBLE.fullmatch(delivery) is not None and _ENDS_WITH_NUMBER.search(delivery) is None
    return any(matches) and is_recent and is_id
