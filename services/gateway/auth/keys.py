"""The keys that are valid now."""

import hashlib
import hmac
import secrets
from collections.abc import Mapping

from .caller import Caller

_SECRET = secrets.token_bytes(32)


class Keys:
    """Callers by their keys. A look-up costs the same however many there are, and its time says nothing about them.

    A plain look-up would compare a digest that a caller chose with stored ones, and its time could say how much of
    them agrees. So both are hashed with a secret of this process first: what is compared then, nobody outside knows.
    """

    def __init__(self, callers: Mapping[str, Caller]) -> None:
        """`callers`: by the SHA-256 of their keys, in hexadecimal digits."""
        self._callers = {_hidden(digest): caller for digest, caller in callers.items()}

    def __len__(self) -> int:
        return len(self._callers)

    def find(self, key: str) -> Caller | None:
        """Return the caller who shows this key."""
        return self._callers.get(_hidden(digest_of(key)))


def digest_of(key: str) -> str:
    """Return what is stored of a key."""
    return hashlib.sha256(key.encode()).hexdigest()


def _hidden(digest: str) -> bytes:
    return hmac.digest(_SECRET, digest.encode(), "sha256")
