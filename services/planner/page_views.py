"""Resolves the page of a request, once, when its run opens: what the model reads about it.

Rule 1: pages read by tools, with the tenant and the API key's tools of the run, as any caller does.
Rule 2: nothing here fails a run. What cannot be read is named in what the model reads, and as a warning.
"""

import asyncio
from typing import Any, TypeGuard

import structlog

from contracts.runs.events import RunStarted
from contracts.runs.pages import Page, PageView
from contracts.tools.messages import ReadRequested
from contracts.wire.faults import Fault
from services.messaging.connection import Bus
from services.messaging.errors import Unavailable
from services.shared.runs.pages.page_types import Read, Shown, help_text
from services.shared.runs.pages.registry import Pages
from services.shared.tools.catalogue import read

logger = structlog.get_logger(__name__)

PAGE_WAIT_S = 6.0
"""How long each read of a page may take. All of them are made at once."""
MAX_CONTEXT_CHARACTERS = 64 << 10


async def view_of(bus: Bus, pages: Pages, page: Page, started: RunStarted) -> tuple[PageView, list[str]]:
    """Return what the model of a run reads about its page, and warnings. Raises UnknownPlace."""
    parts, kind = pages.parts(page), pages.pages[page.name]
    lost: list[str] = []
    try:
        reads = kind.reads_of(page)
        results = await asyncio.gather(*(_read(bus, started, each) for each in reads))
        lost = [f"{each.tool}: {found.reason}" for each, found in zip(reads, results, strict=True) if _is_lost(found)]
        shown = kind.shown(page, [None if _is_lost(each) else each for each in results])
        # Raises for what no record can hold.
        PageView(page=page, context=shown.text, **_of_table(shown)).model_dump_json()
    except Exception as error:  # noqa: BLE001, a plug-in may raise anything
        logger.warning("page_not_shown", page=page.name, error=repr(error)[:500])
        shown, lost = Shown(""), [*lost, "the page cannot be shown; the log of the planner says why"]
    lines = [shown.text[:MAX_CONTEXT_CHARACTERS], *(f"Not available now: {each}" for each in lost)]
    view = PageView(
        page=page,
        role=started.request.role,
        persona="\n\n".join(filter(None, (part.persona for part in parts))),
        context="\n".join(filter(None, lines)),
        payloads=pages.payloads(page),
        client_actions=pages.actions(page),
        tools=[name for name in started.tools if pages.offers(page, name)],
        help=help_text(pages.topics, page.name, started.request.role),
        **_of_table(shown),
    )
    return view, [f"page_incomplete: {each}" for each in lost]


def _of_table(shown: Shown) -> dict[str, Any]:
    return {"base_version": shown.base_version, "columns": shown.columns}


def _is_lost(found: Any) -> TypeGuard[Fault]:
    return isinstance(found, Fault)


async def _read(bus: Bus, started: RunStarted, call: Read) -> Any:
    """Return what a tool says, or the fault."""
    request = started.request
    if request.key_tools is not None and call.tool not in request.key_tools:
        return Fault(code="unknown_tool", reason="the API key does not allow this tool")
    asked = ReadRequested(
        tenant=started.tenant,
        tool=call.tool,
        args=call.args,
        user_id=request.user_id,
        request_id=request.request_id,
        trace_id=request.trace_id,
    )
    try:
        found = await read(bus, asked, PAGE_WAIT_S)
    except Unavailable:
        return Fault(code="tool_unavailable", reason="no answer in time", retryable=True)
    if found.status == "failed":
        return found.failure or Fault(code="internal", reason="the tool failed and did not say why")
    return found.observation
