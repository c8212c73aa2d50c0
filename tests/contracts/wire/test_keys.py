"""Keys are built from checked names alone, and of characters on which no S3 server stumbles. No server."""

import hashlib
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.wire import keys
from contracts.wire.names import InvalidName
from tests.contracts.wire.examples import RUN

DIGEST = hashlib.sha256(b"a shared object").hexdigest()
OBJECT = "0a1b2c3d-" + 32 * "0"
BUILDERS: dict[str, Callable[[str], str]] = {
    "new_object_name": keys.new_object_name,
    "object_key": lambda name: keys.object_key("default", name),
    "object_key of tenant": lambda name: keys.object_key(name, OBJECT),
    "listing": lambda name: keys.listing(None, name),
    "listing_key": lambda name: keys.listing_key("default", f"{name}.-", RUN),
    "own_id_key": lambda name: keys.own_id_key(name, keys.listing("any session", None), "abc-123", "blog"),
    "own_ids_of": lambda name: keys.own_ids_of(name, keys.listing(None, RUN), "abc-123"),
    "listings_of": lambda name: keys.listings_of(name, "any session", RUN),
    "listings_of run": lambda name: keys.listings_of("default", None, name),
}


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize(
    "name", ["*", ">", "a.b", "a/b", "../x", "a b", "x\n", "é", "X" * 500, DIGEST.upper(), f"{DIGEST}-0", f"{DIGEST}-"]
)
def test_no_key_is_built_from_a_hostile_name(builder: str, name: str) -> None:
    """Whatever the part that no row of the table checks."""
    with pytest.raises((InvalidName, TypeError)):
        BUILDERS[builder](name)


def test_keys_parse_back() -> None:
    """Those of the index, of lists and of what runs have spent; no other key is taken for one."""
    assert keys.parse_run_key(keys.run_key("acme", 1_700_000_000_000, RUN)) == ("acme", RUN)
    for where in (keys.listing("s", RUN), keys.listing(None, RUN), keys.listing("s", None)):
        assert keys.parse_listing_key(keys.listing_key("acme", where, RUN)) == ("acme", RUN)
    assert keys.run_of_spent_key(keys.spent_key("acme", "ci.main", "20260131", RUN)) == RUN
    for parse in (keys.parse_run_key, keys.parse_listing_key):
        for key in ("", "a", "a.b", "list.acme", f"acme.{RUN}", f"list.acme.-.-.{RUN}.x", f"{'x' * 99}.{RUN}"):
            with pytest.raises(InvalidName):
                parse(key)


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
