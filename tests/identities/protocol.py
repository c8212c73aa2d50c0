"""The protocol of NATS without a client library: what the server denies, in its own words."""

import json
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_DENIED = re.compile(
    r"-ERR 'Permissions Violation for (Publish|Subscription) to \"([^\"]*)\"(?: using queue \"([^\"]*)\")?'"
)


@dataclass
class Denied:
    """What a connection was not allowed: subjects, and subscriptions as (subject, queue group)."""

    publish: set[str] = field(default_factory=set)
    subscribe: set[tuple[str, str]] = field(default_factory=set)


def denied(
    port: int, login: Mapping[str, str], subjects: Iterable[str], subscriptions: Iterable[tuple[str, str]]
) -> Denied:
    """Publish on all subjects and make all subscriptions, over one connection, and return the server's complaints.

    The server handles a connection's lines in order, so before it answers the last PING it has complained of all.
    """
    lines = [f"PUB {subject} 0\r\n\r\n" for subject in subjects]
    lines += [f"SUB {subject} {queue} {number}\r\n" for number, (subject, queue) in enumerate(subscriptions, 1)]
    found = Denied()
    for line in exchange(port, login, "".join(lines)):
        if not line.startswith("-ERR"):
            continue
        complaint = _DENIED.fullmatch(line)
        assert complaint is not None, line
        if complaint[1] == "Publish":
            found.publish.add(complaint[2])
        else:
            found.subscribe.add((complaint[2], complaint[3] or ""))
    return found


def exchange(port: int, login: Mapping[str, str], lines: str) -> list[str]:
    """Send lines over a connection of their own; return what the server says until it has handled them all."""
    options = {"verbose": False, "pedantic": False, "user": login.get("user"), "pass": login.get("password")}
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection, connection.makefile("rb") as answers:
        assert answers.readline().startswith(b"INFO ")
        connection.sendall(f"CONNECT {json.dumps(options)}\r\nPING\r\n".encode())
        assert (greeting := answers.readline()) == b"PONG\r\n", greeting
        connection.sendall(f"{lines}PING\r\n".encode())
        said: list[str] = []
        while (line := answers.readline().decode().removesuffix("\r\n")) != "PONG":
            assert line, f"the server closed the connection: {said[-1:]}"
            said.append(line)
        return said
