"""Send messages in less time than nats-py: headers are checked once per name, and large payloads are not copied.

nats-py matches and translates each header of each message, and copies a payload twice, which takes a millisecond of CPU
per megabyte. The bytes on the wire are the same: `tests/messaging/nats_patches/test_payloads.py` compares them, and
fails when nats-py no longer has what is replaced.
"""

from functools import lru_cache

from nats.aio.client import _CRLF_, _HEADER_KEY_RE, _HEADER_VALUE_NEWLINES, NATS_HDR_LINE, Client
from nats.errors import BadHeaderError, BadSubjectError

_LARGE_PAYLOAD_BYTES = 64 << 10
"""Smaller payloads are copied: a copy costs less than writing a second buffer."""
_FIRST_LINE = bytes(NATS_HDR_LINE).decode()


def use_fast_sender(client: Client) -> None:
    """Send the messages of this connection with `send` below."""

    async def send(subject: str, reply: str, payload: bytes, payload_size: int, headers: dict[str, str] | None) -> None:
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
        if client._flush_queue is not None and client._flush_queue.empty():  # noqa: SLF001
            await client._flush_pending()  # noqa: SLF001

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
