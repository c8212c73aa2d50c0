"""The client of nats-py, for programs that demand TLS or wait for a credential."""

from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NatsError

DENIED = "permissions violation"
"""In lower case, in each error of NATS about a subject."""


class TlsNotOffered(NatsError):
    """The server offers no TLS although it is demanded."""


class NatsClient(Client):
    """The client of nats-py, changed in three ways.

    It does not do without TLS where it is demanded; nats-py does if the server offers none, even for `tls://`. It
    reconnects after any error of the server; nats-py closes for good, for example when a credential is revoked. It
    closes the socket of an attempt that failed.
    """

    demands_tls = False

    # The name and the form of the argument are those of nats-py.
    async def _process_info(
        self,
        info: dict[str, Any],
        initial_connection: bool = False,  # noqa: FBT001, FBT002
    ) -> None:
        if initial_connection and self.demands_tls:
            if not (info.get("tls_required") or info.get("tls_available")):
                raise TlsNotOffered
            info["tls_required"] = True  # nats-py begins TLS when it reads this
        await super()._process_info(info, initial_connection)

    async def _connect_to_server(self, s: Any) -> None:
        if self._transport:
            self._transport.close()  # type: ignore[no-untyped-call]  # nats-py does not annotate it
        await super()._connect_to_server(s)

    async def _process_err(self, err_msg: str) -> None:
        if DENIED in err_msg:
            await super()._process_err(err_msg)
        else:
            error = NatsError(f"nats: {err_msg}")
            await self._error_cb(error)
            await self._process_op_err(error)
