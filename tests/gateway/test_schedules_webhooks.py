"""Deliveries to webhooks: a signed one starts a run, once; one that is not signed learns nothing."""

import asyncio
import base64
import hashlib
import hmac
import time
from typing import Any

import httpx
import pytest

from contracts.sessions.schedules import MAX_WEBHOOK_BYTES
from contracts.wire import keys
from contracts.wire.names import new_id, started_run_id
from services.gateway import schedules
from services.gateway.schedules import MAX_AGE_S, is_signed
from services.messaging.connection import Bus
from services.messaging.kv import Bucket
from tests.gateway.test_schedules import created
from tests.support.gateways import Served, connection, requested, serving_as
from tests.support.nats_server import NatsServer


def signed(secret: str, body: bytes, delivery: str = "msg_1", at: int | None = None) -> dict[str, str]:
    """The headers of a delivery, as Standard Webhooks has them."""
    stamp = str(int(time.time()) if at is None else at)
    key = base64.b64decode(secret.removeprefix("whsec_"))
    digest = hmac.digest(key, f"{delivery}.{stamp}.".encode() + body, hashlib.sha256)
    signature = f"v1,{base64.b64encode(digest).decode()}"
    return {"webhook-id": delivery, "webhook-timestamp": stamp, "webhook-signature": signature}


async def deliver(served: Served, made: dict[str, Any], body: bytes = b"{}", **signing: Any) -> httpx.Response:
    headers = signed(made["secret"], body, **signing)
    return await served.http.post(made["webhook_url"], content=body, headers=headers)


async def test_a_delivery_starts_a_run_without_a_key(shared_nats: NatsServer, bus: Bus) -> None:
    """As the key that made the webhook would; the body is data for the model."""
    async with serving_as(shared_nats.url, "ann", {"name": "hooks", "user": "eva"}) as keyed:
        run = {"query": "Judge the alarm.", "llm_context": {"site": "north"}, "tool_context": {"token": "x"}}
        made = await created(keyed, run=run, webhook=True)
        assert made["next"] == []
        answer = await deliver(keyed, made, b'{"alarm": 7}')
        assert answer.status_code == 202, answer.text
        started = started_run_id("ann", made["schedule_id"], "msg_1")
        assert answer.json()["run_id"] == started
        request = await requested(bus, started, "ann")
        assert request.llm_context == {"site": "north", "webhook": {"alarm": 7}}
        assert (request.key_id, request.user_id, request.is_user_pinned) == ("hooks", "eva", True)
        assert (request.schedule_id, request.tool_context) == (made["schedule_id"], {"token": "x"})
        shown = await keyed.http.get(f"/v1/schedules/{made['schedule_id']}")
        assert made["secret"] not in shown.text


async def test_a_delivery_twice_is_one_run(served: Served) -> None:
    """The same answer, also at the same moment, with another body, and after a while."""
    made = await created(served, webhook=True)
    answers = await asyncio.gather(*(deliver(served, made) for _ in range(4)))
    answers += [await deliver(served, made, b'{"again": true}'), await deliver(served, made, at=int(time.time()) - 60)]
    assert {each.status_code for each in answers} == {202}
    assert len({each.content for each in answers}) == 1
    assert (await deliver(served, made, delivery="msg_2")).json()["run_id"] != answers[0].json()["run_id"]


async def test_a_delivery_that_is_not_signed_learns_nothing(served: Served) -> None:
    """The same bytes for a webhook that does not exist, a schedule, a wrong signature, and one that is old.

    So it is with an id that ends with a timestamp, since the same bytes are signed for a shorter id and a longer body.
    """
    made, schedule = await created(served, webhook=True), await created(served, cron="0 2 * * *")
    good, path, now = signed(made["secret"], b"{}"), made["webhook_url"], int(time.time())
    other = "whsec_" + base64.b64encode(b"0" * 32).decode()
    sent: list[tuple[str, dict[str, str], bytes]] = [
        (f"/v1/hooks/{new_id()}", good, b"{}"),
        (f"/v1/hooks/{schedule['schedule_id']}", good, b"{}"),
        ("/v1/hooks/*", good, b"{}"),
        ("/v1/hooks/x", good, b"{}"),
        (path, {}, b"{}"),
        (path, signed(other, b"{}"), b"{}"),
        (path, good, b"{ }"),
        (path, {**good, "webhook-id": "msg_2"}, b"{}"),
        (path, {**good, "webhook-timestamp": str(now + 1)}, b"{}"),
        (path, signed(made["secret"], b"{}", at=now - MAX_AGE_S - 5), b"{}"),
        (path, signed(made["secret"], b"{}", at=now + MAX_AGE_S + 5), b"{}"),
        (path, signed(made["secret"], b"{}", delivery=""), b"{}"),
        (path, signed(made["secret"], b"{}", delivery="a b"), b"{}"),
        (path, signed(made["secret"], b"{}", delivery=f"a.{now}"), b"{}"),
        (path, {**good, "webhook-signature": good["webhook-signature"].replace("v1,", "v2,")}, b"{}"),
    ]
    answers = [await served.http.post(url, headers=headers, content=body) for url, headers, body in sent]
    assert {(each.status_code, each.content) for each in answers} == {(404, answers[0].content)}
    assert (await served.http.get(path)).status_code == 405
    accepted = await served.http.post(path, headers=good, content=b"{}")
    assert accepted.status_code == 202


async def test_a_body_is_json_and_small(served: Served) -> None:
    """413 for anybody's body that is larger; 422 for one that is signed and no JSON."""
    made = await created(served, webhook=True)
    for body, status in (
        (b"x" * (MAX_WEBHOOK_BYTES + 1), 413),
        (b"{", 422),
        (b"", 422),
        (b"NaN", 422),
        (b"7", 202),
        (b"\xef\xbb\xbf7", 202),
    ):
        assert (await deliver(served, made, body)).status_code == status, body[:10]


async def test_a_deleted_webhook_starts_nothing(served: Served, bus: Bus) -> None:
    """And leaves no secret."""
    made = await created(served, webhook=True)
    assert (await served.http.delete(f"/v1/schedules/{made['schedule_id']}")).status_code == 204
    assert (await deliver(served, made)).status_code == 404
    assert not (await Bucket(bus, keys.RUNS_BUCKET).get(keys.webhook_entry(made["schedule_id"]))).data


async def test_the_runs_of_a_key_are_limited(shared_nats: NatsServer) -> None:
    """By the limit that the key had when it made the webhook."""
    async with serving_as(shared_nats.url, "ann", {"name": "one-run", "max_runs": "1"}) as keyed:
        made = await created(keyed, webhook=True)
        assert (await deliver(keyed, made)).status_code == 202
        refused = await deliver(keyed, made, delivery="msg_2")
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_runs")
        assert (await deliver(keyed, made)).status_code == 202


async def test_few_deliveries_are_read_at_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sends them has shown no key. Of further ones not even the body is awaited."""
    monkeypatch.setattr(served.parts.deliveries, "_value", 0)
    request = b"POST /v1/hooks/x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\r\n"
    async with connection(served, request) as (reader, _):
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    assert head.startswith(b"HTTP/1.1 503 ")
    assert b"retry-after: 2" in head.lower()


def test_one_of_several_signatures_is_enough() -> None:
    """A sender that changes its secret sends both for a while. The vector is that of Standard Webhooks."""
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    stamp, signature = "1614265330", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    delivery = "msg_p5jXN8AQM9LWM0D4loKWxJek"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schedules, "unix_ms", lambda: 1614265330_000)
        assert is_signed(secret, delivery, stamp, signature, body)
        assert is_signed(secret, delivery, stamp, f"v1a,x v1,nonsense {signature}", body)
        assert not is_signed(secret, delivery, stamp, "", body)
        assert not is_signed(secret, delivery, stamp, signature, body + b" ")
    assert not is_signed(secret, delivery, stamp, signature, body)
