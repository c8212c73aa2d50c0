"""The client's methods for schedules and webhooks, and the signature of a webhook's delivery."""

import base64
import hashlib
import hmac
import time
from datetime import datetime
from typing import Any, Literal, Unpack

from pydantic import BaseModel

from contracts.sessions.schedules import WEBHOOK_KEY_PREFIX, ScheduleCreated, ScheduleView
from contracts.wire import names
from runwire.client.options import RunOptions
from runwire.client.transport import Transport, checked


class _Schedules(BaseModel):
    schedules: list[ScheduleView]


class ScheduleMethods:
    """Schedules and webhooks: add one, list them, show one, delete one."""

    _transport: Transport

    async def add_schedule(
        self,
        query: str,
        *,
        cron: str | None = None,
        at: str | datetime | None = None,
        webhook: bool = False,
        time_zone: str | None = None,
        missed: Literal["skip", "run_once"] = "skip",
        name: str = "",
        idempotency_key: str | None = None,
        **options: Unpack[RunOptions],
    ) -> ScheduleCreated:
        """Add a schedule or webhook, and return it with its next three times, or with the webhook's secret.

        Args:
            query: the question of each run.
            cron: minute, hour, day of the month, month and day of the week, in `time_zone`.
            at: one time; without an offset from UTC it is local time in `time_zone`.
            webhook: each signed delivery starts a run. Exactly one of `cron`, `at` and `webhook` is given.
            time_zone: a name of the IANA database, such as Europe/Berlin; of `cron` by default UTC.
            missed: times that came more than 60 s ago while no planner was there start no run, or one.
            name: for people.
            idempotency_key: the same key with the same schedule adds one; default: a new key.
            **options: of each run, see `RunOptions`.

        Raises:
            IdempotencyConflict: the key was used for another schedule.
            RunwireError: the gateway refused, or cannot be reached; `invalid_input` names the field.
        """
        shown = at.isoformat() if isinstance(at, datetime) else at
        fields: dict[str, Any] = {"cron": cron, "at": shown, "webhook": webhook, "time_zone": time_zone}
        body = {"run": {"query": query, **options}, "missed": missed, "name": name, **fields}
        headers = {"Idempotency-Key": idempotency_key or names.new_id()}
        return await self._transport.ask(ScheduleCreated, "POST", "/v1/schedules", json=body, headers=headers)

    async def schedules(self) -> list[ScheduleView]:
        """List schedules and webhooks, newest first."""
        return (await self._transport.ask(_Schedules, "GET", "/v1/schedules")).schedules

    async def schedule(self, schedule_id: str) -> ScheduleView:
        """Return a schedule or webhook, with its next three times. Raises NotFound."""
        return await self._transport.ask(ScheduleView, "GET", f"/v1/schedules/{checked(schedule_id)}")

    async def delete_schedule(self, schedule_id: str) -> None:
        """Delete a schedule or webhook; runs that it has started continue. Raises NotFound, also when called again."""
        await self._transport.request("DELETE", f"/v1/schedules/{checked(schedule_id)}")


def webhook_headers(secret: str, body: bytes, delivery_id: str | None = None) -> dict[str, str]:
    """Return the headers that sign a delivery to a webhook now, as Standard Webhooks has them.

    The same `delivery_id` starts one run, however often it is sent; default: a new one.
    """
    delivery, timestamp = delivery_id or names.new_id(), str(int(time.time()))
    key = base64.b64decode(secret.removeprefix(WEBHOOK_KEY_PREFIX))
    digest = hmac.digest(key, f"{delivery}.{timestamp}.".encode() + body, hashlib.sha256)
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": delivery, "webhook-timestamp": timestamp, "webhook-signature": signature}
