"""Who gets in, for how long, and how much of the server one credential may hold."""

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from runwire.identities import TOOLS_LIMITS
from tests.identities.attacks import ATTACKS, Attack
from tests.identities.scene import Scene
from tests.identities.users import add_tools_and_listeners
from tests.support.nats_server import NatsServer, admits
from tests.support.waiting import wait_until_blocking


@pytest.fixture
def own(tmp_path: Path) -> Iterator[NatsServer]:
    """A server with users, for a test that changes them."""
    with NatsServer(tmp_path / "nats", identities=add_tools_and_listeners) as server:
        yield server


def _connect(server: NatsServer, user: str) -> socket.socket:
    login = server.login(user)
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=10)
    options = json.dumps({"verbose": False, "user": login["user"], "pass": login["password"]})
    connection.sendall(f"CONNECT {options}\r\nPING\r\n".encode())
    return connection


def _is_admitted(connection: socket.socket) -> bool:
    with connection.makefile("rb") as lines:
        assert lines.readline().startswith(b"INFO ")
        return lines.readline() == b"PONG\r\n"


@pytest.mark.parametrize(
    ("user", "password"),
    [(None, None), ("tool_weather", "wrong"), ("tool_weather", ""), ("no_such_user", "x"), ("", ""), ("planner", "p")],
)
def test_nobody_gets_in_without_a_credential(server: NatsServer, user: str | None, password: str | None) -> None:
    """Nor with the password of nobody."""
    assert not admits(server.port, user, password)


def test_a_credential_is_worth_nothing_on_another_platform(server: NatsServer, own: NatsServer) -> None:
    """Which has the same names and other passwords: a tool that finds the wrong server on its port serves nobody."""
    for user in ("tool_weather", "local", "planner", "operator"):
        assert admits(server.port, **server.login(user))
        assert not admits(own.port, **server.login(user))


def test_connections_without_end_do_not_keep_the_services_out(own: NatsServer) -> None:
    """One credential may use up the connections of its account, and of no other."""
    most = int(TOOLS_LIMITS["max_connections"])
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(_connect(own, "tool_geo")) for _ in range(most + 50)]
        # The server counts a connection when it has read its login, so of several at once some more may slip in.
        assert most <= sum(map(_is_admitted, opened)) < len(opened)
        assert admits(own.port, **own.login("planner"))
        assert admits(own.port, **own.login("listener_acme"))
        assert not admits(own.port, **own.login("tool_weather"))
    wait_until_blocking(lambda: admits(own.port, **own.login("tool_weather")), what="the connections are free again")


def _name(attack: Attack) -> str:
    return getattr(attack, "__name__", "?")


@pytest.mark.parametrize("attack", ATTACKS, ids=_name)
async def test_an_attack_fails(guarded: Scene, unguarded: Scene, attack: Attack) -> None:
    """Under the identities of a deployment. Without them it succeeds, so it is one."""
    assert not await attack(guarded)
    assert await attack(unguarded)
