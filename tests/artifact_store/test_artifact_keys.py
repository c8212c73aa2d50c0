"""The ids that tools give their artifacts name the newest one, over a real NATS server."""

import asyncio
from typing import Any

import pytest

from contracts.artifacts import ArtifactRef, PutArtifact
from contracts.wire.names import new_id
from services.artifact_store.entries import SHARED_KEY
from services.shared.artifacts.errors import ArtifactInvalid
from tests.artifact_store.inside import Inside
from tests.support.stores import Store
from tests.support.waiting import wait_until


async def named(store: Store, own_id: str = "abc-123", **where: Any) -> list[ArtifactRef]:
    """What an id names; in the session `s` unless `where` says otherwise."""
    page = await store.client.list(store.tenant, own_id=own_id, **(where or {"session": "s"}))
    assert page.next_cursor is None
    return [each.ref for each in page.artifacts]


def blog(store: Store, body: bytes = b"{}", **more: Any) -> PutArtifact:
    """The put of an artifact that its tool calls abc-123, in the session `s`."""
    return store.put_of(body, **{"own_id": "abc-123", "namespace": "blog", "session_id": "s", **more})


async def test_an_id_names_the_newest_artifact(embedded: Store) -> None:
    """In one request, with the id, the skill and the reference; lists show the older one still."""
    ask, warnings = embedded.client, list[str]()
    about: dict[str, Any] = {"session": "s", "namespace": "blog", "own_id": "abc-123", "on_warning": warnings.append}
    first = await ask.put(embedded.tenant, b"first", skill_id="writing", skill_name="Writing", **about)
    assert (first.own_id, first.skill_id, first.skill_name) == ("abc-123", "writing", "Writing")
    assert (await named(embedded), warnings) == ([first], [])
    second = await ask.put(embedded.tenant, b"second", skill_id="editing", **about)
    assert (await named(embedded), warnings) == ([second], [SHARED_KEY])
    assert [each.ref for each in (await ask.list(embedded.tenant, session="s")).artifacts] == [first, second]
    by_skill = await ask.list(embedded.tenant, session="s", skill_id="writing")
    assert [each.ref for each in by_skill.artifacts] == [first]


async def test_each_tool_session_run_and_tenant_has_its_own(embedded: Store) -> None:
    """The newest of each tool, the newest first; in a run of a session what the run has made."""
    ask, runs = embedded.client, [new_id(), new_id()]
    own: dict[str, Any] = {"own_id": "abc-123"}
    blog_1 = await ask.put(embedded.tenant, b"1", session="s", run=runs[0], namespace="blog", **own)
    chart = await ask.put(embedded.tenant, b"2", session="s", run=runs[0], namespace="chart", skill_id="x", **own)
    blog_2 = await ask.put(embedded.tenant, b"3", session="s", run=runs[1], namespace="blog", **own)
    alone = await ask.put(embedded.tenant, b"4", run=new_id(), namespace="blog", **own)
    elsewhere = await ask.put(embedded.tenant, b"5", session="t", namespace="blog", **own)
    await ask.put(f"{embedded.tenant}-b", b"6", session="s", namespace="blog", **own)
    assert await named(embedded) == [blog_2, chart]
    assert await named(embedded, session="s", limit=1) == [blog_2]
    assert await named(embedded, session="s", namespace="chart") == [chart]
    assert await named(embedded, session="s", skill_id="x") == [chart]
    assert await named(embedded, run=runs[0]) == [chart, blog_1]
    assert await named(embedded, session="s", run=runs[1]) == [blog_2]
    assert await named(embedded, session="t", run=runs[1]) == []
    assert await named(embedded, session="t") == [elsewhere]
    assert alone not in await named(embedded)
    with pytest.raises(ArtifactInvalid, match="session_id or run_id"):
        await ask.list(embedded.tenant, own_id="abc-123")


async def test_many_puts_in_several_instances_leave_the_newest(embedded: Store) -> None:
    """No update is lost: what the id names is the artifact whose reference is the last one."""
    insides = [Inside(embedded.bus, embedded.settings) for _ in range(3)]
    puts = [blog(embedded, str(number).encode(), run_id=new_id()) for number in range(24)]
    done = await asyncio.gather(
        *(insides[number % 3].store.put(put, str(number).encode()) for number, put in enumerate(puts))
    )
    read = [await insides[0].references.read(embedded.tenant, put.artifact_id) for put in puts]
    newest = max((entry for entry, _ in read if entry is not None), key=lambda entry: entry.sequence)
    assert await named(embedded) == [newest.reference.ref]
    assert [each.warning for each in done].count(None) == 1


async def test_what_is_gone_has_no_id(embedded: Store, inside: Inside) -> None:
    """Deleted or expired: the id names nothing, and no late put of an older artifact gets it; a new one does."""
    older, newer = blog(embedded), blog(embedded, b"[]")
    await inside.store.put(older, b"{}")
    await inside.store.put(newer, b"[]")
    await embedded.client.delete(embedded.tenant, newer.artifact_id)
    assert await named(embedded) == []
    await inside.store.put(older, b"{}")
    assert await named(embedded) == []
    brief = blog(embedded, b"1", ttl_s=1)
    assert (await inside.store.put(brief, b"1")).warning is None

    async def is_gone() -> bool:
        return not await named(embedded)

    await wait_until(is_gone, what="it has expired")
    again = blog(embedded, b"2")
    assert (await inside.store.put(again, b"2")).warning is None
    assert [ref.artifact_id for ref in await named(embedded)] == [again.artifact_id]
