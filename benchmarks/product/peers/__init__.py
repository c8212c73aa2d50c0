"""Other runtimes for agents, beside the product in the same run. They are installed in environments of their own.

Each of them answers the same questions with the same model server and the same tool, over its own HTTP API. The folder
PEERS_HOME holds them; what is missing there is named with the commands that install it.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from benchmarks.product.peers.agno import Agno
from benchmarks.product.peers.base import Peer
from benchmarks.product.peers.restate import Restate

_KINDS: tuple[type[Peer], ...] = (Agno, Restate)


def installed() -> Mapping[str, Peer]:
    """Return the peers in PEERS_HOME by name, and print how the others are installed.

    Raises SystemExit when there is none.
    """
    home = os.environ.get("PEERS_HOME")
    if not home:
        raise SystemExit("--peers needs peers: set PEERS_HOME to a folder, perhaps an empty one, and run this again.")
    peers = {kind.name: kind(Path(home)) for kind in _KINDS}
    for name, peer in peers.items():
        if missing := peer.missing():
            print(f"{name} is left out: there is no {missing}. To install it:\n{peer.install}")
    found = {name: peer for name, peer in peers.items() if not peer.missing()}
    if not found:
        raise SystemExit("No peer is installed.")
    return found
