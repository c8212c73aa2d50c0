"""Every message that a whole system sends, from its start, fits a channel of the contracts."""

import asyncio
import base64
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
from tests.support.images import drawn, encoded
from tests.support.model_server import ModelServer, Say, action, answer, words
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.stack import ROOT, Stack
from tests.support.waiting import wait_until

OF_NATS = ("$JS.", "$JSC.", "$SYS.", "_INBOX")
"""JetStream's own API, acknowledgements and events, and inboxes of replies."""
IMAGE = f"data:image/png;base64,{base64.b64encode(encoded(drawn(), 'png')).decode()}"
SEEN = {
    *("request", "inbox", "control", "emit_log", "emit_stream", "run_log", "run_stream", "context", "timer"),
    *(
        "call",
        "tool",
        "answer",
        "hello",
        "artifact_put",
        "artifact_open",
        "artifact_chunk",
        "artifact_head",
        "artifact_get",
    ),
    *(
        "artifact_list",
        "artifact_assemble",
        "artifact_delete",
        "live_tool",
        "tool_spec",
        "model_profile",
        "run_entry",
        "run_deletion",
    ),
    *("reference", "listing", "bucket_owner"),
}
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
async def whole(server: NatsServer, folder: Path, model: ModelServer) -> AsyncIterator[httpx.AsyncClient]:
    """One process of everything."""
    with S3Server("rclone", folder / "s3") as s3:
        env = {
            "RUNWIRE_MODEL": "openai/scripted",
            "RUNWIRE_MODEL_API_BASE": model.url,
            "RUNWIRE_MODEL_API_KEY": "none",
            **s3.settings,
        }
        env["RUNWIRE_MODEL_VISION"] = '{"openai/scripted": true}'
        tools = ROOT / "tests" / "system" / "artifact_tools.py"
        stack = Stack(
            server.url,
            folder / "stack",
            env,
            1,
            1,
            artifact_stores=1,
            tools=tools,
            tool_copies=1,
            passwords=server.passwords,
        )
        await asyncio.to_thread(stack.__enter__)
        try:
            async with httpx.AsyncClient(base_url=stack.url, timeout=60) as http:
                yield http
        finally:
            stack.__exit__()


async def use(http: httpx.AsyncClient, model: ModelServer) -> None:
    """Every kind of request: artifact, artifact stream, image, tool context, top-up, cancel, upload, deletion."""
    model.by_turn(action("report"), answer("Here."), marker="Q-report")
    model.by_turn(action("narrate"), answer("Told."), marker="Q-narrate")
    model.by_turn(action("linger"), answer("Done."), marker="Q-linger")
    model.by_turn(answer("An image."), marker="Q-image")
    model.by_turn(action("film", first=1), Say(silent=True), marker="Q-cancel")

    async def has_tools() -> bool:
        return {"report", "narrate", "linger", "film"} <= {
            each["name"] for each in (await http.get("/v1/tools")).json()["tools"]
        }

    await wait_until(has_tools, timeout=30, what="the tools are there")
    model.by_turn(Say(text=answer(words(50)).text, stall_after=20), marker="Q-top-up")
    asked = {}
    for marker in ("Q-report", "Q-narrate", "Q-linger", "Q-image", "Q-cancel", "Q-top-up"):
        body = {
            "query": marker,
            "tool_context": {"token": "x"},
            **({"images": [{"data": IMAGE}]} if marker == "Q-image" else {}),
        }
        reply = await http.post("/v1/runs", json=body)
        assert reply.status_code == 202, reply.text
        asked[marker] = reply.json()["run_id"]
    for marker in ("Q-cancel", "Q-top-up"):
        await wait_until(partial(is_asked, model, marker), what="the model is asked")
    assert (
        await http.post(f"/v1/runs/{asked['Q-top-up']}/top-up", json={"limits": {"max_steps": 40}})
    ).status_code == 202
    assert (await http.post(f"/v1/runs/{asked['Q-cancel']}/cancel")).status_code == 202
    model.release()
    for run in asked.values():
        await wait_until(partial(has_ended, http, run), timeout=60, what="the run has ended")
    uploaded = (await http.post("/v1/artifacts", params={"session_id": "s"}, content=bytes(5 << 20))).json()[
        "artifact_id"
    ]
    for method in ("GET", "DELETE"):
        assert (await http.request(method, f"/v1/artifacts/{uploaded}")).is_success
    assert (await http.get(f"/v1/runs/{asked['Q-report']}/artifacts")).is_success
    assert (await http.delete(f"/v1/runs/{asked['Q-image']}")).status_code == 202


def is_asked(model: ModelServer, marker: str) -> bool:
    """Whether the model was asked in a conversation with this marker."""
    return any(marker in each.text for each in list(model.ledger))


async def has_ended(http: httpx.AsyncClient, run: str) -> bool:
    return (await http.get(f"/v1/runs/{run}")).json()["ended_at"] is not None


async def test_everything_that_is_sent_is_described(own_identified_server: NatsServer, tmp_path: Path) -> None:
    """Each subject has a channel, and each message is of a kind that its channel names."""
    async with tapped(own_identified_server) as received:
        with ModelServer() as model:
            async with whole(own_identified_server, tmp_path, model) as http:
                await use(http, model)
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
