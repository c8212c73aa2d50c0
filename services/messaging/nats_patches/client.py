"""The client of nats-py, changed where it would give up TLS, or the connection.

nats-py connects without TLS when the server offers none, also to `tls://`. It closes for good after most errors of a
server, for example when a login is renewed. It waits for ever for the end of a connection whose TLS handshake failed.
"""

from typing import Any

from nats.aio.client import Client
from nats.errors import Error as NatsError

_DENIED = "permissions violation"
"""In lower case, in each error of NATS about a subject. The connection goes on after it."""


class TlsNotOffered(NatsError):
    """The server offers no TLS although it is demanded. Nothing was sent to it."""

    def __str__(self) -> str:
        return "nats: the server offers no TLS, which RUNWIRE_NATS_CA or tls:// demands"


class ServiceClient(Client):
    """A client that insists on TLS where it is demanded, and reconnects after any error."""

    def __init__(self, *, demands_tls: bool) -> None:
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

    async def _process_err(self, err_msg: str) -> None:
        if _DENIED in err_msg:
            await super()._process_err(err_msg)
        else:
            error = NatsError(f"nats: {err_msg}")
            await self._error_cb(error)
            await self._process_op_err(error)
