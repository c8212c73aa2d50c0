"""The helpers of the tests, tested: a helper that waits wrongly makes every test lie."""

import time
from pathlib import Path

import nats
import pytest

from tests.support import checkout
from tests.support.nats_server import NatsServer, NatsServerFailed
from tests.support.needs import PORTS, find_program, free_port, needs_program
from tests.support.waiting import wait_until, wait_until_blocking


async def test_waiting_gives_what_came_true() -> None:
    """Plain and async predicates alike; the value comes back, so a test can look at it."""
    seen: list[int] = []

    def plain() -> list[int]:
        seen.append(1)
        return seen if len(seen) == 3 else []

    async def asynchronous() -> int:
        return len(plain())

    assert await wait_until(plain, what="three looks were taken") == [1, 1, 1]
    seen.clear()
    assert await wait_until(asynchronous, what="three looks were taken") == 3


async def test_waiting_in_vain_names_the_condition() -> None:
    """The failure says what was waited for and what was seen instead."""
    with pytest.raises(AssertionError, match=r"waited 0\.02 s in vain until pigs fly; last seen: 0"):
        await wait_until(lambda: 0, timeout=0.02, what="pigs fly")
    with pytest.raises(AssertionError, match="until pigs fly; last seen: None"):
        wait_until_blocking(lambda: None, timeout=0.02, what="pigs fly")


def test_a_predicate_that_raises_ends_the_wait() -> None:
    """A broken condition is not a late one."""
    started = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        wait_until_blocking(lambda: 1 // 0, timeout=30, what="the sum is done")
    assert time.monotonic() - started < 10


def test_free_ports_lie_outside_the_range_of_outgoing_connections() -> None:
    """See PORTS."""
    assert {free_port() for _ in range(20)} <= set(PORTS)


def test_what_is_missing_skips_on_a_laptop_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CI cannot pass by skipping: neither without a program nor in a copy without `.git`."""
    monkeypatch.setattr(checkout, "ROOT", tmp_path)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-program is not installed"):
        needs_program("no-such-program")
    with pytest.raises(pytest.skip.Exception, match="not a git checkout"):
        checkout.files.__wrapped__()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-program is not installed"):
        needs_program("no-such-program")
    with pytest.raises(pytest.fail.Exception, match="not a git checkout"):
        checkout.files.__wrapped__()
    assert find_program("no-such-program") is None


async def test_the_store_and_the_port_outlive_a_kill(own_nats_server: NatsServer) -> None:
    """What was acknowledged before a SIGKILL is there after the next start, at the same address."""
    url = own_nats_server.url
    async with await nats.connect(url, allow_reconnect=False) as before:
        js = before.jetstream()
        await js.add_stream(name="KEPT", subjects=["kept"])
        await js.publish("kept", b"word")
        own_nats_server.kill()
        assert not own_nats_server.running

    own_nats_server.start()

    assert own_nats_server.url == url
    async with await nats.connect(url) as after:
        message = await after.jetstream().get_last_msg("KEPT", "kept")
    assert message.data == b"word"


async def test_large_messages_pass(nats_server: NatsServer) -> None:
    """The server takes 8 MB, as every configuration that is shipped does."""
    async with await nats.connect(nats_server.url) as client:
        assert client.max_payload == 8 * 1024 * 1024


def test_a_server_that_cannot_start_shows_its_log(tmp_path: Path) -> None:
    """A wrong configuration fails at once, with the server's own words."""
    server = NatsServer(tmp_path, extra="no_such_option: yes")
    with pytest.raises(NatsServerFailed, match="no_such_option"):
        server.start()


def test_a_first_start_moves_away_from_a_taken_port(nats_server: NatsServer, tmp_path: Path) -> None:
    """Two workers may draw the same port."""
    server = NatsServer(tmp_path)
    server.port = nats_server.port
    server.start()
    try:
        assert server.port != nats_server.port
    finally:
        server.kill()
