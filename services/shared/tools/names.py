"""Names of tools as models and protocols take them."""

import hashlib
import re

_MAX_CHARACTERS, _HASH_DIGITS = 64, 8


def model_name(wanted: str) -> str:
    """Return a name of `A-Za-z0-9_-` in 64 characters at most; what is changed gets a suffix hashed from the original.

    The same name gives the same one in any order of starts, and no other gives it.
    """
    clean = re.sub(r"[^A-Za-z0-9_-]", "_", wanted, flags=re.ASCII)
    if clean == wanted and len(clean) <= _MAX_CHARACTERS:
        return clean
    mark = hashlib.sha256(wanted.encode(errors="surrogatepass")).hexdigest()[:_HASH_DIGITS]
    room = _MAX_CHARACTERS - _HASH_DIGITS - 1
    if len(clean) <= room:
        return f"{clean}_{mark}"
    return f"{clean[: room - 16]}_{mark}_{clean[-15:]}"
