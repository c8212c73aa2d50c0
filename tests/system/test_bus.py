"""Every message that a whole system sends, from its start, fits a channel of the contracts."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx
import nats
from nats.aio.msg import Msg
from pydantic import BaseModel, ValidationError

from contracts.asyncapi import CHANNELS, JSON, Body, bodies
from contracts.wire.subject import Subject
from tests.support.buses import processed
from tests.support.images import data_url, drawn, encoded
from tests.support.model_server import ModelServer, Say, action, answer, words
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.waiting import wait_until
from tests.system.deployment import Whole, stack_of

OF_NATS = ("$JS.", "$JSC.", "$SYS.", "_INBOX")
"""JetStream's own API, acknowledgements and events, and inboxes of replies."""
IMAGE = data_url(encoded(drawn(), "png"), "image/png")
_CHANNELS = """
request inbox control emit_log emit_stream run_log run_stream context timer call tool answer hello artifact_put
artifact_open artifact_chunk artifact_head artifact_get artifact_list artifact_assemble artifact_delete live_tool
tool_spec model_profile run_entry run_deletion reference listing bucket_owner
"""
SEEN = {*_CHANNELS.split()}
"""Channels on which something must have been sent, or the test has looked at too little."""


def channels_of(subject: str) -> list[Subject]:
    found = subject.split(".")
    addresses = [(each, each.channel.split(".")) for each in CHANNELS]
    return [
        each
        for each, wanted in addresses
        if len(wanted) == len(found)
        and all(ours.startswith("{") or ours == theirs for ours, theirs in zip(wanted, found, strict=True))
    ]


def holds(body: Body, message: Msg) -> bool:
    """Whether a message can be this kind. What is no model of ours is not looked into."""
    if not isinstance(body.schema, type) or not issubclass(body.schema, BaseModel):
        return True
    try:
        body.schema.model_validate_json(message.data)
    except ValidationError:
        # An entry of a bucket is removed by an empty one.
        return not message.data and message.subject.startswith("$KV.")
    return body.content == JSON


@contextlib.asynccontextmanager
async def tapped(server: NatsServer) -> AsyncIterator[list[Msg]]:
    """Everything that is published, as long as this is entered."""
    received: list[Msg] = []

    async def hear(message: Msg) -> None:
        received.append(message)

    async with await nats.connect(server.url, **server.login("operator")) as client:
        await client.subscribe(">", cb=hear, pending_msgs_limit=-1, pending_bytes_limit=-1)
        await processed(client)
        yield received


@contextlib.asynccontextmanager
async def started(nats: NatsServer, folder: Path) -> AsyncIterator[Whole]:
    """One process of everything."""
    with ModelServer() as model, S3Server("rclone", folder / "s3") as s3:
        stack = stack_of(nats, model, s3, folder / "stack", planners=1)
        await asyncio.to_thread(stack.__enter__)  # What is sent meanwhile is received.
        try:
            async with httpx.AsyncClient(base_url=stack.url, timeout=60) as http:
                yield Whole(stack, nats, s3, model, http)
        finally:
            stack.__exit__()


async def use(whole: Whole) -> None:
    """Every kind of request: artifact, artifact stream, image, tool context, top-up, cancel, upload, deletion."""
    replies = {
        "Q-report": [action("report"), answer("Here.")],
        "Q-narrate": [action("narrate"), answer("Told.")],
        "Q-linger": [action("linger"), answer("Done.")],
        "Q-image": [answer("An image.")],
        "Q-cancel": [action("film", first=1), Say(silent=True)],
        "Q-top-up": [Say(text=answer(words(50)).text, stall_after=20)],
    }
    more = {"Q-image": {"images": [{"data": IMAGE}]}}
    http, context = whole.http, {"token": "x"}
    await whole.has_tools()
    runs = {
        marker: await whole.begin(marker, *said, tool_context=context, **more.get(marker, {}))
        for marker, said in replies.items()
    }
    for marker in ("Q-cancel", "Q-top-up"):
        await wait_until(partial(whole.asked, marker), what="the model is asked")
    topped_up = await http.post(f"/v1/runs/{runs['Q-top-up']}/top-up", json={"limits": {"max_steps": 40}})
    cancelled = await http.post(f"/v1/runs/{runs['Q-cancel']}/cancel")
    assert (topped_up.status_code, cancelled.status_code) == (202, 202)
    whole.model.release()
    for run in runs.values():
        await whole.ended(run)
    uploaded = (await http.post("/v1/artifacts", params={"session_id": "s"}, content=bytes(5 << 20))).json()
    for method in ("GET", "DELETE"):
        assert (await http.request(method, f"/v1/artifacts/{uploaded['artifact_id']}")).is_success
    assert await whole.listed(runs["Q-report"])
    assert (await http.delete(f"/v1/runs/{runs['Q-image']}")).status_code == 202


async def test_everything_that_is_sent_is_described(own_identified_server: NatsServer, tmp_path: Path) -> None:
    """Each subject has a channel, and each message is of a kind that its channel names."""
    async with tapped(own_identified_server) as received, started(own_identified_server, tmp_path) as whole:
        await use(whole)
        with contextlib.suppress(AssertionError):
            await wait_until(lambda: seen(received) >= SEEN, what="all has been sent")
    assert SEEN - seen(received) == set()
    ours = [each for each in received if not each.subject.startswith(OF_NATS)]
    assert [each.subject for each in ours if not channels_of(each.subject)] == []
    wrong = {
        each.subject
        for each in ours
        if not any(holds(body, each) for found in channels_of(each.subject) for body in bodies(found.carries).values())
    }
    assert wrong == set()


def seen(received: list[Msg]) -> set[str]:
    """The names of the channels on which something was sent."""
    return {found.name for subject in {each.subject for each in received} for found in channels_of(subject)}
