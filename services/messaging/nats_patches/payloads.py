"""Send large payloads without copies: nats-py copies them twice, which takes a millisecond of CPU per megabyte.

The bytes on the wire are the same: `tests/messaging/test_nats_patches.py` compares them, and fails when nats-py no
longer has what is replaced.
"""

from nats.aio.client import _CRLF_, _HEADER_KEY_RE, _HEADER_VALUE_NEWLINES, NATS_HDR_LINE, Client
from nats.errors import BadHeaderError

_LARGE_PAYLOAD_BYTES = 64 << 10
"""Smaller payloads are copied: a copy costs less than writing a second buffer."""


def send_large_uncopied(client: Client) -> None:
    """Send large payloads of this connection without a copy."""
    send_copied = client._send_publish  # noqa: SLF001, nats-py has no place to say so

    async def send(subject: str, reply: str, payload: bytes, payload_size: int, headers: dict[str, str] | None) -> None:
        # Other kinds of buffer may change before they are written.
        if payload_size < _LARGE_PAYLOAD_BYTES or type(payload) is not bytes or not subject:
            return await send_copied(subject, reply, payload, payload_size, headers)
        client.stats["out_msgs"] += 1
        client.stats["out_bytes"] += payload_size
        command = _command(subject, reply, payload_size, headers)
        client._pending += [command, payload, _CRLF_]  # noqa: SLF001
        client._pending_data_size += len(command) + payload_size + len(_CRLF_)  # noqa: SLF001
        if client._flush_queue is not None and client._flush_queue.empty():  # noqa: SLF001
            await client._flush_pending()  # noqa: SLF001
        return None

    client._send_publish = send  # type: ignore[method-assign]  # noqa: SLF001


def _command(subject: str, reply: str, size: int, headers: dict[str, str] | None) -> bytes:
    """Return the bytes before the payload."""
    if headers is None:
        return f"PUB {subject} {reply} {size}\r\n".encode()
    block = _header_block(headers)
    return f"HPUB {subject} {reply} {len(block)} {len(block) + size}\r\n".encode() + block


def _header_block(headers: dict[str, str]) -> bytes:
    lines = [bytes(NATS_HDR_LINE)]
    for name, value in headers.items():
        key = name.strip()
        if not key:
            continue
        if not _HEADER_KEY_RE.fullmatch(key):
            raise BadHeaderError(key)
        lines.append(f"{key}: {value.strip().translate(_HEADER_VALUE_NEWLINES)}".encode())
    return _CRLF_.join([*lines, b"", b""])
