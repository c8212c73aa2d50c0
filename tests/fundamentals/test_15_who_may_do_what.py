"""An API key says who asks and what they may do. The file of keys is followed, so nothing is restarted for a change."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from contracts.wire.names import new_id
from runwire import Client, RunwireError
from services.gateway.auth.key_lines import new_key
from tests.fundamentals.conftest import ACME_KEY, ANN_KEY, ASKING_KEY, BOB_KEY, KEY_FILE, KEYED_GATEWAY
from tests.support.model_server import ModelServer, action, answer
from tests.support.stack import Stack
from tests.support.waiting import wait_until


@dataclass
class Callers:
    """Clients of one tenant, `acme`, each with its own key."""

    acme: Client
    asking: Client
    ann: Client
    bob: Client


@pytest.fixture
async def callers(stack: Stack, client: Client) -> AsyncIterator[Callers]:
    """A key with the usual rights, one that may only ask, and those of two users."""
    assert client is not None
    async with AsyncExitStack() as opened:
        keys = (ACME_KEY, ASKING_KEY, ANN_KEY, BOB_KEY)
        url = stack.url_of(KEYED_GATEWAY)
        yield Callers(*[await opened.enter_async_context(Client(url, key, patience_s=0)) for key in keys])


async def ask(stack: Stack, key: str, method: str, path: str, body: object = None) -> httpx.Response:
    """Send a request with a key."""
    async with httpx.AsyncClient(base_url=stack.url_of(KEYED_GATEWAY), timeout=30) as http:
        return await http.request(method, path, json=body, headers={"Authorization": f"Bearer {key}"})


def replace(file: Path, text: str) -> None:
    """Write a new file and move it into place, so that no reader finds half of it."""
    new = file.with_name("new_keys")
    new.write_text(text, encoding="utf-8")
    new.replace(file)


async def test_who_asks_may_not_approve(callers: Callers, model: ModelServer) -> None:
    """A program whose key lacks the right `approve` cannot approve its own calls. Another key decides."""
    model.say(action("pay", euros=500), answer("Not paid."))
    [pause] = (await callers.asking.chat("Pay the invoice", agent="scripted")).pauses
    with pytest.raises(RunwireError) as refused:
        await callers.asking.approve(pause)
    assert (refused.value.status, refused.value.code) == (403, "right_missing")
    assert "approve" in str(refused.value)

    await callers.acme.reject(pause)
    assert (await callers.asking.result(pause.run_id)).status == "done"


async def test_what_belongs_to_another_user_does_not_exist(stack: Stack, callers: Callers, model: ModelServer) -> None:
    """The answer has the same bytes as for what never was. A key of the whole tenant sees it."""
    model.say(action("pay", euros=500), answer("Not paid."))
    session = new_id()
    run = await callers.ann.chat("Pay the invoice", agent="scripted", session_id=session)
    [pause] = run.pauses
    decision = {"pause_id": pause.pause_id, "token": pause.token, "decision": "approve"}
    attempts = [
        ("GET", "/v1/runs/{}", None),
        ("GET", "/v1/runs/{}/events", None),
        ("POST", "/v1/runs/{}/resume", decision),
        ("POST", "/v1/runs/{}/input", {"text": "and more"}),
        ("POST", "/v1/runs/{}/cancel", {}),
        ("DELETE", "/v1/runs/{}", None),
    ]
    for method, path, body in attempts:
        found, missing = [await ask(stack, BOB_KEY, method, path.format(name), body) for name in (run.run_id, new_id())]
        assert (found.status_code, found.content) == (404, missing.content), path
    for method in ("GET", "DELETE"):
        found, missing = [await ask(stack, BOB_KEY, method, f"/v1/sessions/{name}") for name in (session, new_id())]
        assert (found.status_code, found.content) == (404, missing.content)

    assert run.run_id not in [listed.run_id async for listed in callers.bob.list_runs()]
    assert (await callers.acme.status(run.run_id)).user_id == "ann"
    await callers.ann.reject(pause)


async def test_a_key_may_have_so_many_runs_at_once(stack: Stack, callers: Callers) -> None:
    """A further one is refused, with the limit and when to try again. Other keys are not held up."""
    first = await callers.bob.start("Take a nap of 50 seconds")
    refused = await ask(stack, BOB_KEY, "POST", "/v1/runs", {"query": "What is 1+1?"})
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_runs")
    assert "1 runs of this API key" in refused.json()["detail"]
    assert int(refused.headers["Retry-After"]) > 0
    assert (await callers.ann.chat("What is 1+1?")).status == "done"

    await callers.bob.cancel(first)
    await callers.bob.result(first)

    async def is_admitted() -> bool:
        return (await ask(stack, BOB_KEY, "POST", "/v1/runs", {"query": "What is 1+1?"})).status_code == 202

    await wait_until(is_admitted, what="the key may start a run again")


async def test_keys_change_without_a_restart(stack: Stack, callers: Callers) -> None:
    """A new line admits within about a second. A file that cannot be read changes nothing, and `/readyz` says why."""
    file = stack.folder / KEY_FILE
    before = file.read_text(encoding="utf-8")
    key, line = new_key("acme", {"agents": "scripted"})

    async def status() -> int:
        return (await ask(stack, key, "GET", "/v1/runs")).status_code

    async def is_admitted() -> bool:
        return await status() == 200

    async def problems() -> str:
        return "".join((await ask(stack, key, "GET", "/readyz")).json()["problems"])

    assert await status() == 401
    try:
        replace(file, f"{before}{line}\n")
        await wait_until(is_admitted, what="the new key is admitted")
        other = await ask(stack, key, "POST", "/v1/runs", {"query": "What is 1+1?", "agent": "native"})
        assert (other.status_code, other.json()["code"]) == (403, "not_allowed")

        replace(file, f"{before}{line} rights=everything\n")
        problem = await wait_until(problems, what="the gateway is not ready")
        assert "line 5, rights" in problem
        assert await status() == 200
        assert (await callers.ann.chat("What is 1+1?")).status == "done"
    finally:
        replace(file, before)

    async def is_refused() -> bool:
        return await status() == 401

    await wait_until(is_refused, what="the key is refused")
