"""The client of nats-py for programs that demand TLS, or whose login may be renewed: commands, tools and services."""

import importlib
import sys
from typing import Any

_takes_aiohttp = "aiohttp" not in sys.modules
if _takes_aiohttp:  # nats-py imports it, for websockets: 8 MB in every process.
    sys.modules["aiohttp"] = None  # type: ignore[assignment]

from nats.aio import transport  # noqa: E402
from nats.aio.client import Client  # noqa: E402
from nats.errors import Error as NatsError  # noqa: E402

DENIED = "permissions violation"
"""In lower case, in each error of NATS about a subject."""


class _Aiohttp:
    """The library, imported when it is used."""

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("aiohttp"), name)


if _takes_aiohttp:
    del sys.modules["aiohttp"]
    transport.aiohttp = _Aiohttp()  # type: ignore[assignment, attr-defined]


class TlsNotOffered(NatsError):
    """The server offers no TLS although it is demanded."""

    def __str__(self) -> str:
        return "the server offers no TLS, which is demanded (tls://, or a certificate authority); nothing was sent"


class NatsClient(Client):
    """The client of nats-py, changed in four ways.

    It does not do without TLS where it is demanded; nats-py does if the server offers none, even for `tls://`. It
    reconnects after any error of the server; nats-py closes for good, for example when a credential is revoked. It
    closes the socket of an attempt that failed; nats-py leaves it open, or waits for ever for the end of one whose TLS
    handshake failed. It ends a TLS connection without the warning of asyncio that nats-py causes at each end.
    """

    def __init__(self, *, demands_tls: bool = False) -> None:
        super().__init__()
        self._demands_tls = demands_tls

    # The name and the form of the argument are those of nats-py.
    async def _process_info(
        self,
        info: dict[str, Any],
        initial_connection: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        if initial_connection and self._demands_tls:
            if not (info.get("tls_required") or info.get("tls_available")):
                raise TlsNotOffered
            info["tls_required"] = True  # nats-py begins TLS when it reads this
        await super()._process_info(info, initial_connection)

    async def _process_connect_init(self) -> None:
        try:
            await super()._process_connect_init()
        except BaseException:
            if self._transport is not None:
                self._transport.close()  # type: ignore[no-untyped-call]  # nats-py does not annotate it
            self._transport = None  # nats-py waits for the end of what is here
            raise
        writer = getattr(self._transport, "_io_writer", None)  # A websocket has none.
        if writer is not None and writer.get_extra_info("ssl_object") is not None:
            writer.transport.get_protocol()._over_ssl = True  # noqa: SLF001, asyncio sets it where it begins TLS itself

    async def _connect_to_server(self, s: Any) -> None:
        if self._transport is not None:  # Of a reconnect that failed behind its handshake.
            self._transport.close()  # type: ignore[no-untyped-call]
        self._transport = None
        await super()._connect_to_server(s)

    async def _process_err(self, err_msg: str) -> None:
        if DENIED in err_msg:
            await super()._process_err(err_msg)
        else:
            error = NatsError(f"nats: {err_msg}")
            await self._error_cb(error)
            await self._process_op_err(error)
