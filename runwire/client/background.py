"""The client's methods for background tasks and groups, schedules, and webhooks with the signature of a delivery."""

import base64
import hashlib
import hmac
import time
from datetime import datetime
from typing import Any, Literal, TypeVar, Unpack

from pydantic import BaseModel

from contracts.sessions.schedules import WEBHOOK_KEY_PREFIX, ScheduleCreated, ScheduleView
from contracts.sessions.tasks import GroupView, TaskStatusName, TaskView
from contracts.wire import names
from runwire.client.options import RunOptions
from runwire.client.transport import Transport, checked

V = TypeVar("V", TaskView, GroupView)
_PATHS: dict[type[BaseModel], str] = {TaskView: "/v1/tasks", GroupView: "/v1/groups"}


class TaskMethods:
    """Background tasks of sessions: list, read, cancel, and decide about what they found.

    `session_id` is only needed once the task's run is deleted. A change returns once it has been carried out. It raises
    NotFound, and RunwireError with a code of its own if it does not apply: `already_ended`, `group_not_complete`,
    `nothing_held`, `already_decided`, `task_in_group`.
    """

    _transport: Transport

    async def tasks(self, session_id: str, status: TaskStatusName | None = None) -> list[TaskView]:
        """List the tasks of a session, oldest first, without their results. Raises NotFound."""
        listed = self._transport.listed(TaskView, "/v1/tasks", session_id=session_id, status=status)
        return [task async for task in listed]

    async def task(self, task_id: str, *, session_id: str | None = None) -> TaskView:
        """Return a task with what it found. Its run has the same id. Raises NotFound."""
        return await self._read(TaskView, task_id, session_id)

    async def cancel_task(
        self, task_id: str, *, session_id: str | None = None, idempotency_key: str | None = None
    ) -> TaskView:
        """End a task's run; the task counts as failed in its group."""
        return await self._change(TaskView, task_id, "cancel", session_id, idempotency_key)

    async def apply_task(
        self, task_id: str, *, session_id: str | None = None, idempotency_key: str | None = None
    ) -> TaskView:
        """Show later runs what a task without a group found that is `HUMAN_GATED`."""
        return await self._change(TaskView, task_id, "apply", session_id, idempotency_key)

    async def reject_task(
        self, task_id: str, *, session_id: str | None = None, idempotency_key: str | None = None
    ) -> TaskView:
        """Show no run what a task without a group found that is `HUMAN_GATED`."""
        return await self._change(TaskView, task_id, "reject", session_id, idempotency_key)

    async def groups(self, session_id: str) -> list[GroupView]:
        """List the groups of a session, oldest first. Raises NotFound."""
        return [group async for group in self._transport.listed(GroupView, "/v1/groups", session_id=session_id)]

    async def group(self, group_id: str, *, session_id: str | None = None) -> GroupView:
        """Return a group. Raises NotFound."""
        return await self._read(GroupView, group_id, session_id)

    async def seal_group(
        self, group_id: str, *, session_id: str | None = None, idempotency_key: str | None = None
    ) -> GroupView:
        """Let no further task join a group; it ends when all its tasks have ended."""
        return await self._change(GroupView, group_id, "seal", session_id, idempotency_key)

    async def cancel_group(
        self, group_id: str, *, session_id: str | None = None, idempotency_key: str | None = None
    ) -> GroupView:
        """Seal a group, and end the runs of its tasks."""
        return await self._change(GroupView, group_id, "cancel", session_id, idempotency_key)

    async def apply_group(
        self, group_id: str, *, session_id: str | None = None, idempotency_key: str | None = None
    ) -> GroupView:
        """Show later runs what the tasks of a `HUMAN_GATED` group found, once it has ended."""
        return await self._change(GroupView, group_id, "apply", session_id, idempotency_key)

    async def reject_group(
        self, group_id: str, *, session_id: str | None = None, idempotency_key: str | None = None
    ) -> GroupView:
        """Show no run what the tasks of a `HUMAN_GATED` group found, once it has ended."""
        return await self._change(GroupView, group_id, "reject", session_id, idempotency_key)

    async def _read(self, kind: type[V], thing: str, session_id: str | None) -> V:
        return await self._transport.ask(kind, "GET", f"{_PATHS[kind]}/{checked(thing)}", params=_of(session_id))

    async def _change(self, kind: type[V], thing: str, verb: str, session_id: str | None, key: str | None) -> V:
        headers = {"Idempotency-Key": key or names.new_id()}
        path = f"{_PATHS[kind]}/{checked(thing)}/{verb}"
        answer = await self._transport.settle(path, headers=headers, params=_of(session_id))
        return self._transport.parsed(kind, answer)


def _of(session_id: str | None) -> dict[str, str] | None:
    return {"session_id": session_id} if session_id else None


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
        return [schedule async for schedule in self._transport.listed(ScheduleView, "/v1/schedules")]

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
