"""A process that floods discovery, as one user of NATS: `python -m tests.identities.flooder PORT USER PASSWORD TOOL`.

To each question which tools there are it sends thousands of false names, and thousands of replies of its own name.
"""

import json
import socket
import sys

FALSE_NAMES, REPLIES = 20_000, 20_000
_UNKNOWN = b"0" * 32
"""Stands for the instance that asks, so that the flood is ready before the question."""


def main(port: str, user: str, password: str, tool: str) -> None:
    """Flood until NATS closes the connection."""
    flood = _flood(tool)
    with socket.create_connection(("127.0.0.1", int(port))) as connection, connection.makefile("rb") as lines:
        options = json.dumps({"verbose": False, "user": user, "pass": password})
        connection.sendall(f"CONNECT {options}\r\nSUB $SRV.PING 1\r\nPING\r\n".encode())
        for line in lines:
            if line == b"PING\r\n":
                connection.sendall(b"PONG\r\n")
            if line == b"PONG\r\n":
                sys.stdout.write("flooding\n")
                sys.stdout.flush()
            if line.startswith(b"MSG "):
                connection.sendall(flood.replace(_UNKNOWN, line.split()[3].removeprefix(b"hello.")))


def _flood(tool: str) -> bytes:
    names = (b'{"name":"f%d"}' % number for number in range(FALSE_NAMES))
    replies = b"PUB answer.%s.%s.info 2\r\n{}\r\n" % (tool.encode(), _UNKNOWN) * REPLIES
    return replies + b"".join(b"PUB hello.%s %d\r\n%s\r\n" % (_UNKNOWN, len(name), name) for name in names)


if __name__ == "__main__":
    main(*sys.argv[1:])
