"""Keys are built from checked names alone, and of characters on which no S3 server stumbles. No server."""

import hashlib
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.wire import keys, subjects
from contracts.wire.names import InvalidName

RUN = "01a203e31b7b7bc19c60d1cad35e3192"
DIGEST = hashlib.sha256(b"a shared object").hexdigest()
BUILDERS: dict[str, Callable[[str], str]] = {
    "artifact_chunk": subjects.artifact_chunk,
    "reference_key": lambda name: keys.reference_key("default", name),
    "reference_key of tenant": lambda name: keys.reference_key(name, RUN),
    "new_object_name": keys.new_object_name,
    "object_key": lambda name: keys.object_key("default", name),
    "object_key of tenant": lambda name: keys.object_key(name, OBJECT),
    "listing": lambda name: keys.listing(None, name),
    "listing_key": lambda name: keys.listing_key("default", name, RUN),
    "own_id_key": lambda name: keys.own_id_key(name, keys.listing("any session", None), "abc-123", "blog"),
    "own_ids_of": lambda name: keys.own_ids_of(name, keys.listing(None, RUN), "abc-123"),
    "listings_of": lambda name: keys.listings_of(name, "any session", RUN),
}


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize(
    "name", ["*", ">", "a.b", "a/b", "../x", "a b", "x\n", "é", "X" * 500, DIGEST.upper(), f"{DIGEST}-0", f"{DIGEST}-"]
)
def test_no_key_is_built_from_a_hostile_name(builder: str, name: str) -> None:
    """Whatever the part that is not checked elsewhere."""
    with pytest.raises(InvalidName):
        BUILDERS[builder](name)


@given(st.from_regex(r"[a-z0-9_-]{1,64}", fullmatch=True))
def test_object_keys_are_plain_and_can_be_read_back(tenant: str) -> None:
    """Of [a-z0-9/_-], with short segments; no two objects of an artifact have the same."""
    names = [keys.new_object_name(RUN), keys.new_object_name(RUN)]
    assert len(set(names)) == 2
    for name in names:
        key = keys.object_key(tenant, name)
        assert re.fullmatch(r"[a-z0-9_-]+/[0-9a-f]{2}/[a-z0-9-]{41,66}", key)
        assert keys.parse_object_key(key) == (tenant, name)
    assert keys.artifact_of_object(names[0]) == RUN


OBJECT = "0a1b2c3d-" + 32 * "0"


@pytest.mark.parametrize(
    "key",
    ["", "a", "a/b", f"t/00/{DIGEST}x", f"t/{OBJECT[:2]}/{OBJECT}/more", f"/{OBJECT[:2]}/{OBJECT}", f"t/zz/{OBJECT}"],
)
def test_what_is_no_key_of_an_object_is_left_alone(key: str) -> None:
    """The bucket may hold other things."""
    with pytest.raises(InvalidName):
        keys.parse_object_key(key)


@given(st.text(min_size=1, max_size=200))
def test_any_session_has_a_place(session: str) -> None:
    """Its name is the caller's own text; the place is a digest of it, two tokens with the run."""
    where = keys.listing(session, RUN)
    assert re.fullmatch(rf"[0-9a-f]{{32}}\.{RUN}", where)
    key = keys.listing_key("default", where, RUN)
    for pattern in (keys.listings_of("default", session, RUN), keys.listings_of("default", session, None)):
        assert re.fullmatch(pattern.replace(".", r"\.").replace("*", r"[^.]+"), key)


@given(st.text(min_size=1, max_size=200), st.none() | st.text(max_size=64))
def test_any_own_id_has_a_key(own_id: str, namespace: str | None) -> None:
    """Of a session or of a run; the pattern of the id matches it, and its tenant can be read back."""
    for where in (keys.listing("any session", None), keys.listing(None, RUN)):
        key = keys.own_id_key("default", where, own_id, namespace)
        assert key.startswith(keys.own_ids_of("default", where, own_id)[:-1])
        assert (keys.is_own_id_key(key), keys.parse_own_id_key(key)) == (True, "default")


@pytest.mark.parametrize("key", ["", "own", "own.default", f"own.default.-.{RUN}", f"own.a.-.{RUN}.{RUN}.{RUN}.{RUN}"])
def test_what_is_no_key_of_an_own_id_is_refused(key: str) -> None:
    """Keys have six parts, of characters that keys may have."""
    with pytest.raises(InvalidName):
        keys.parse_own_id_key(key)
