"""Replacements of slow functions of nats-py, until it has faster ones: requests, the parser of headers, the sender.

Each durable write and each read is a request. Ours takes four fifths of the time of nats-py's: a number instead of a
random token per request, no task per time-out, no second check of the subject, no queue for replies. nats-py calls
`set_result` of a subscription's future with each message, so a handler replaces the future: a reply reaches its waiter
one step of the event loop earlier (`tests/messaging/test_nats_patches.py`).

Headers are parsed in a fifth of the time (35 µs for a chunk with nine headers): nats-py checks each character of each
name in Python, and a run of a thousand steps is read back in two thousand messages. The result is the same: the
test compares both, and fails when nats-py no longer has what is replaced.

Two things are added. The server puts `Nats-Subject` and other headers on what it reads back or republishes. A message
with two of them was already an answer of the server when it was stored: somebody had a read answered to the subject of
a stream. And a block with more lines or bytes than any program of ours sends would stop this process for seconds. Both
are marked as forged, and none of their own headers counts.

What is sent has the same bytes (the same test). Headers are checked once per name, and large payloads are not copied:
nats-py copies each twice, which takes a millisecond of CPU per megabyte. What is published in one turn of the event
loop is written at its end. nats-py's flusher, a task, is woken only where a socket takes no more.
"""

import asyncio
from asyncio import Future
from collections.abc import Callable
from functools import lru_cache
from itertools import count
from typing import Any, cast

from nats.aio.client import _CRLF_, _HEADER_KEY_RE, _HEADER_VALUE_NEWLINES, NATS_HDR_LINE, Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.errors import BadHeaderError, BadSubjectError

from services.messaging.errors import NATS_ERRORS, NoResponders, translated


class _Handler:
    """Has what nats-py uses of a subscription's future."""

    def __init__(self, handle: Callable[[Msg], None]) -> None:
        self.set_result = handle

    def cancelled(self) -> bool:
        return False


async def subscribe(client: Client, subject: str, handle: Callable[[Msg], None]) -> Subscription:
    """Call `handle` with each message, in the task that reads the connection. `handle` must not raise."""
    return await client.subscribe(subject, future=cast("Future[Any]", _Handler(handle)))


Headers = dict[str, str] | None
Interim = Callable[[Msg], bool]
"""Takes a reply that is not the last one, and returns whether it was one."""


class RequestReply:
    """The requests of one connection that wait for a reply; any number at once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._inbox = client.new_inbox() + "."
        self._numbers = count(1)
        self._waiting: dict[str, asyncio.Future[Msg]] = {}
        self._interim: dict[str, Interim] = {}

    async def start(self) -> "RequestReply":
        """Subscribe to replies. Later requests on this connection reach the server after the subscription."""
        await subscribe(self._client, f"{self._inbox}*", self._on_message)
        return self

    async def request(
        self,
        subject: str,
        data: bytes,
        wait_s: float,
        headers: Headers = None,
        interim: Interim | None = None,
        answer: "asyncio.Future[Msg] | None" = None,
    ) -> Msg:
        """Return the first reply that `interim` does not take. `answer`: gets it; the caller may end it by an error.

        Raises Unavailable after `wait_s` seconds or when the connection is lost, NoResponders, and Refused for a
        message that is too large.
        """
        loop = asyncio.get_running_loop()
        key = str(next(self._numbers))
        answer = self._waiting[key] = answer or loop.create_future()
        if interim is not None:
            self._interim[key] = interim
        timer = loop.call_later(wait_s, expire, answer)
        try:
            await self._client.publish(subject, data, reply=self._inbox + key, headers=headers)
            message = await answer
        except NATS_ERRORS as error:
            raise translated(error) from error
        finally:
            timer.cancel()
            del self._waiting[key]
            self._interim.pop(key, None)
        if message.headers and not message.data and message.headers.get("Status") == "503":
            raise NoResponders("nobody answers on this subject")
        return message

    def connection_lost(self) -> None:
        """End all waits: a reply to a request on a lost connection may never come."""
        for answer in self._waiting.values():
            expire(answer)

    def _on_message(self, message: Msg) -> None:
        key = message.subject[len(self._inbox) :]
        waiting = self._waiting.get(key)
        if waiting is None or waiting.done() or (key in self._interim and self._interim[key](message)):
            return
        waiting.set_result(message)


def expire(answer: asyncio.Future[Any]) -> None:
    """End a wait with TimeoutError. `asyncio.wait_for` of Python 3.11 can lose a cancellation as the reply comes."""
    if not answer.done():
        answer.set_exception(TimeoutError())


FORGED = "Runwire-Forged"
"""A header that only a forged message has."""
_MAX_LINES, _MAX_BYTES = 100, 64 << 10
_MAX_SERVER_BYTES = 2048
_OF_SERVER = frozenset({"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Last-Sequence", "Nats-Time-Stamp"})

_BLANK = " \t\n\r\x0b\x0c"
_MAX_CHECKED = 100
_checked: set[str] = set()
"""Names that were checked before. Nearly all headers have one of them."""


def parse(raw: bytes) -> dict[str, str]:
    """Return names and values of a header block (`Name: value` per line). Invalid lines are skipped."""
    # The server's own come last, and the last one counts.
    if len(raw) > _MAX_BYTES or raw.count(b"\r\n") > _MAX_LINES:
        return _forged(_parsed(raw[-_MAX_SERVER_BYTES:]))
    found = _parsed(raw)
    return _forged(found) if raw.count(b"Nats-Subject:") > 1 else found


def _parsed(raw: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in raw.decode("utf-8", "replace").split("\r\n"):
        name, colon, value = line.partition(":")
        if colon and name in _checked:
            found[name] = value.strip(_BLANK)
            continue
        key = name.strip(_BLANK)
        if colon and key.isascii() and key.split() == [key]:
            found[key] = value.strip(_BLANK)
            if key == name and len(_checked) < _MAX_CHECKED:
                _checked.add(name)
    return found


def _forged(found: dict[str, str]) -> dict[str, str]:
    return {FORGED: "1", **{name: value for name, value in found.items() if name in _OF_SERVER}}


def use_fast_parser(client: Client) -> None:
    """Parse headers of this connection with `parse`."""
    client._parse_header_lines = parse  # type: ignore[method-assign]  # noqa: SLF001, nats-py has no place to say so


_LARGE_PAYLOAD_BYTES = 64 << 10
"""Smaller payloads are copied: a copy costs less than writing a second buffer."""
_FIRST_LINE = bytes(NATS_HDR_LINE).decode()


def use_fast_sender(client: Client) -> None:
    """Send the messages of this connection with `send` below."""
    loop, is_due = asyncio.get_running_loop(), False

    def flush() -> None:
        nonlocal is_due
        is_due = False
        transport = getattr(getattr(client._transport, "_io_writer", None), "transport", None)  # noqa: SLF001
        if not client.is_connected or not client._pending:  # noqa: SLF001
            return
        if transport is not None and not transport.get_write_buffer_size() and not transport.is_closing():
            waiting, client._pending, client._pending_data_size = client._pending, [], 0  # noqa: SLF001
            transport.writelines(waiting)
        elif client._flush_queue is not None and client._flush_queue.empty():  # noqa: SLF001
            client._flush_queue.put_nowait(loop.create_future())  # noqa: SLF001

    async def send(subject: str, reply: str, payload: bytes, payload_size: int, headers: dict[str, str] | None) -> None:
        nonlocal is_due
        if subject == "":
            raise BadSubjectError
        if headers is None:
            command = f"PUB {subject} {reply} {payload_size}\r\n".encode()
        else:
            block = _header_block(headers)
            sizes = len(block), len(block) + payload_size
            command = b"HPUB %b %b %d %d\r\n%b" % (subject.encode(), reply.encode(), *sizes, block)
        client.stats["out_msgs"] += 1
        client.stats["out_bytes"] += payload_size
        # Other kinds of buffer may change before they are written.
        if payload_size < _LARGE_PAYLOAD_BYTES or type(payload) is not bytes:
            client._pending.append(b"".join((command, payload, _CRLF_)))  # noqa: SLF001, nats-py has no place to say so
        else:
            client._pending += [command, payload, _CRLF_]  # noqa: SLF001
        client._pending_data_size += len(command) + payload_size + len(_CRLF_)  # noqa: SLF001
        if not is_due:
            is_due = True
            loop.call_soon(flush)

    client._send_publish = send  # type: ignore[method-assign]  # noqa: SLF001


def _header_block(headers: dict[str, str]) -> bytes:
    block = _FIRST_LINE
    for name, value in headers.items():
        if key := _key(name):
            line = value.strip()
            if "\n" in line or "\r" in line:
                line = line.translate(_HEADER_VALUE_NEWLINES)
            block += f"\r\n{key}: {line}"
    return (block + "\r\n\r\n").encode()


@lru_cache(maxsize=256)
def _key(name: str) -> str:
    """Return a header's name as it is sent; empty: it is left out. Raises BadHeaderError."""
    key = name.strip()
    if key and not _HEADER_KEY_RE.fullmatch(key):
        raise BadHeaderError(key)
    return key
