"""The parts of a gateway, built once. Routes get them with each request. Nothing connects here."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, cast
from weakref import WeakValueDictionary

from fastapi import Depends, Request

from contracts.runs.events import ControlAnswered
from contracts.sessions.records import SessionEvent
from contracts.tools.messages import ToolSpec
from contracts.wire import keys
from services.gateway.artifacts.reading import ArtifactAccess, Inliner
from services.gateway.auth.guard import Logins, Tickets
from services.gateway.models import ModelProfiles
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from services.shared.artifacts.client import ArtifactClient
from services.shared.runs.pages.registry import Pages, load_pages

from .artifacts.images import InputImages
from .auth.guard import Guard, build_guard
from .edge.open_streams import OpenStreams
from .edge.request_body import RunInputReader
from .runs import messages
from .runs.index import Index
from .runs.messages import ControlAnswers, MessageWriter, of_run, of_session
from .runs.quota import KeyBudgets, RunQuota
from .runs.reader import Deletions, RunReader
from .sessions.reader import SessionReader
from .settings import GatewaySettings

MAX_DELIVERIES_AT_ONCE = 256
"""Deliveries of webhooks that are read and checked at once: their senders have shown no API key."""

LiveTools = Callable[[], Mapping[str, ToolSpec]]
"""Returns the present tools by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the routes of a gateway share."""

    settings: GatewaySettings
    bus: Bus
    tools: LiveTools
    guard: Guard
    tickets: Tickets
    logins: Logins
    streams: OpenStreams
    deletions: Deletions
    runs: RunReader
    sessions: SessionReader
    index: Index
    artifacts: ArtifactClient
    access: ArtifactAccess
    inliner: Inliner
    images: InputImages
    writer: MessageWriter
    run_answers: ControlAnswers[ControlAnswered]
    session_answers: ControlAnswers[SessionEvent]
    bodies: RunInputReader
    models: ModelProfiles
    budgets: KeyBudgets
    quota: RunQuota
    entries: Bucket
    """The bucket of runs, with the schedules and webhooks."""
    deliveries: asyncio.Semaphore
    pages: Pages
    checks: "TenantLocks"
    """For checks that may be costly: one at a time per tenant."""


class TenantLocks:
    """One lock per tenant."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, tenant: str) -> asyncio.Lock:
        """Return the lock of a tenant; it lasts as long as somebody holds it or waits for it."""
        return self._locks.setdefault(tenant, asyncio.Lock())


def build_parts(settings: GatewaySettings, bus: Bus, tools: LiveTools) -> Parts:
    """Raises StartRefused and InvalidPages."""
    deletions, artifacts = Deletions(bus), ArtifactClient(bus, patience_s=messages.ACCEPT_WAIT_S)
    runs = RunReader(bus, deletions)
    sessions = SessionReader(bus, runs, deletions)
    access = ArtifactAccess(artifacts, runs, sessions)
    guard, entries = build_guard(settings), Bucket(bus, keys.RUNS_BUCKET, attempts=2)
    streams = OpenStreams(settings.max_streams, settings.max_streams_per_tenant, guard.admits)
    guard.keys.on_change = streams.end_gone
    return Parts(
        settings=settings,
        bus=bus,
        tools=tools,
        guard=guard,
        tickets=Tickets(entries, guard.named),
        logins=Logins(entries, guard.named),
        streams=streams,
        deletions=deletions,
        runs=runs,
        sessions=sessions,
        index=Index(bus, runs, sessions),
        artifacts=artifacts,
        access=access,
        inliner=Inliner(artifacts),
        images=InputImages(artifacts, access, settings),
        writer=MessageWriter(bus),
        run_answers=ControlAnswers(bus, of_run),
        session_answers=ControlAnswers(bus, of_session),
        bodies=RunInputReader(settings),
        models=ModelProfiles(bus),
        budgets=KeyBudgets(bus, messages.ACCEPT_WAIT_S),
        quota=RunQuota(bus, runs, settings.max_open_runs),
        entries=entries,
        deliveries=asyncio.Semaphore(MAX_DELIVERIES_AT_ONCE),
        pages=load_pages(settings.pages_file),
        checks=TenantLocks(),
    )


async def _parts(request: Request) -> Parts:
    # A coroutine: FastAPI runs plain functions in a thread, and each request would wait for one.
    return cast("Parts", request.app.state.parts)


GatewayParts = Annotated[Parts, Depends(_parts)]
