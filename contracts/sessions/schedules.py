"""Schedules and webhooks: what starts a run at a time, again and again, or when another system asks for it.

A schedule has one trigger: `cron`, `at` or `webhook`. Its entry in the bucket of runs holds the request that each of
its runs is made from.

Rule 1: the id of a run follows from its schedule and its fire time, or the id of the webhook's delivery
(`ids.started_run_id`). So a run is started once, however often it is requested.
Rule 2: what its API key allowed when the schedule was made counts for all its runs.
"""

from typing import Any, Literal

from pydantic import Field

from ..runs.requests import RunInput, RunRequested
from ..wire.base import HttpInput, Message

MissedPolicy = Literal["skip", "run_once"]
"""What happens to fire times that came more than `MAX_LATENESS_S` ago: nothing; or one run, for the newest of them."""

MAX_LATENESS_S = 60
"""A fire time that is handled later than this was missed."""
MAX_SCHEDULES = 1000
"""Schedules and webhooks of a tenant."""
MAX_SCHEDULES_PER_KEY = MAX_SCHEDULES // 2
"""Of these, of one API key: so none takes the room of all others."""
MAX_SCHEDULE_BYTES = 64 * 1024
"""Largest body that makes one."""
FIRE_TIMER = "fire"
"""The name of a schedule's timer; its subject names the schedule where others name a run."""
WEBHOOK_KEY_PREFIX = "whsec_"
"""The beginning of a webhook's secret; the rest is the key as base64."""
MAX_WEBHOOK_BYTES = 32 * 1024
"""Largest body that is sent to a webhook."""


class ScheduleInput(HttpInput):
    """The body of `POST /v1/schedules`: a run, and the one trigger that starts it."""

    run: RunInput = Field(description="as the body of `POST /v1/runs`; it takes no images")
    name: str = Field(default="", max_length=200, description="for people")
    cron: str | None = Field(
        default=None,
        max_length=200,
        description="minute, hour, day of the month, month, day of the week, in `time_zone`",
    )
    at: str | None = Field(
        default=None,
        max_length=40,
        description="one time (RFC 3339); without an offset it is local time in `time_zone`",
    )
    webhook: bool = Field(default=False, description="`POST /v1/hooks/{schedule_id}` starts a run")
    time_zone: str | None = Field(
        default=None, max_length=64, description="a name of the IANA database; of `cron` by default UTC"
    )
    missed: MissedPolicy = Field(
        default="skip",
        description="of fire times that came more than 60 s ago while no planner was there: nothing, or one run",
    )


class Schedule(Message):
    """A schedule or webhook as it is stored. Times are Unix ms."""

    v: Literal[1] = 1
    schedule_id: str
    tenant: str
    name: str = ""
    cron: str | None = None
    at: int | None = None
    time_zone: str | None = None
    missed: MissedPolicy = "skip"
    request: RunRequested = Field(description="of each run, but for its id, trace and time")
    body_sha256: str = Field(description="of the body that made it, to detect a reused idempotency key")
    max_runs: int | None = Field(default=None, description="open runs at once of the API key; null: no limit")
    created_at: int
    next_at: int | None = Field(default=None, description="the next fire time; null: there is none")
    last_at: int | None = Field(default=None, description="the newest fire time that started a run")
    last_run: str | None = None


class Webhook(Message):
    """Where the deliveries of a webhook belong, and what they are signed with."""

    v: Literal[1] = 1
    tenant: str
    secret: str


class ScheduleView(Message):
    """A schedule or webhook, as HTTP shows it. Times are RFC 3339, in the schedule's time zone."""

    schedule_id: str
    name: str = ""
    cron: str | None = None
    at: str | None = None
    time_zone: str | None = None
    missed: MissedPolicy = "skip"
    webhook_url: str | None = Field(default=None, description="of a webhook: where its deliveries go")
    run: dict[str, Any] = Field(
        description="fields of the run that were set, without `tool_context`; in lists only part of `query`"
    )
    key_id: str = Field(default="", description="the API key that made it; empty: a keyless caller")
    user_id: str | None = None
    created_at: int = Field(description="Unix ms")
    next: list[str] = Field(default_factory=list, description="the next three times; in lists the next one")
    last: str | None = Field(default=None, description="the newest fire time that started a run")
    last_run: str | None = Field(default=None, description="that run")


class ScheduleCreated(ScheduleView):
    """The response to `POST /v1/schedules`."""

    secret: str | None = Field(
        default=None, description="of a webhook: signs its deliveries (Standard Webhooks). It is not shown again"
    )
