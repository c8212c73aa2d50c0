"""Subjects are built and parsed in one module, which refuses everything that is not well-formed."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.wire import ids, keys, names, subjects
from contracts.wire.names import InvalidName

RUN = "0192f0c1a2b37c4d8e5f60718293a4b5"
BUILDERS = {
    "request": lambda name: subjects.request(name, RUN),
    "inbox": lambda name: subjects.inbox("default", RUN, name),
    "control": lambda name: subjects.control("default", RUN, name),
    "log": lambda name: subjects.log("default", name),
    "stream": lambda name: subjects.stream(name, RUN),
    "context": lambda name: subjects.context("default", name),
    "live": lambda name: subjects.live("default", name),
    "live_log": lambda name: subjects.live_log("default", name),
    "call": lambda name: subjects.call("default", RUN, name),
    "calls_of": subjects.calls_of,
    "calls_consumer": subjects.calls_consumer,
    "tool": subjects.tool,
    "tool_status": subjects.tool_status,
    "tool_cancel": subjects.tool_cancel,
    "tool_rejected": subjects.tool_rejected,
    "timer": lambda name: subjects.timer("default", RUN, name),
    "due": lambda name: subjects.due("default", RUN, name),
    "answer": lambda name: subjects.answer(name, RUN, "1"),
    "answers_of": subjects.answers_of,
    "discover_info": subjects.discover_info,
    "discover_ping": lambda name: subjects.discover_ping("search", name),
    "dead": subjects.dead,
    "tool_key": keys.tool_key,
    "spec_key": keys.spec_key,
    "run_key": lambda name: keys.run_key("default", 1, name),
    "runs_of": keys.runs_of,
}
HOSTILE = [
    "",
    "*",
    ">",
    "a.b",
    "a b",
    "a\r\nb",
    "a\nb",
    "a\tb",
    "a\x00b",
    "x" * 5000,
    "é",
    "Ａ",
    "٣" * 32,
    "a\u200b",
    "run\n",
    " run",
    "../x",
    "$SRV",
    "%2e",
]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("builder", BUILDERS)
def test_no_subject_is_built_from_a_hostile_name(builder: str, name: str) -> None:
    """Whatever is no plain name is refused, in words that show at most a little of it."""
    with pytest.raises(InvalidName) as refused:
        BUILDERS[builder](name)
    assert len(str(refused.value)) < 150


@given(st.text())
@pytest.mark.parametrize("builder", BUILDERS)
def test_a_subject_has_exactly_its_own_tokens(builder: str, name: str) -> None:
    """Any text either is refused or adds exactly one token, without a wildcard."""
    try:
        built = BUILDERS[builder](name)
    except InvalidName:
        return
    literal = BUILDERS[builder]
    tokens = built.split(".")
    assert all(tokens)
    assert len(tokens) <= 4
    assert set(built) <= set(string.ascii_letters + string.digits + "._-*>")
    assert not {"*", ">"} & set(name)
    assert literal(name) == built


@pytest.mark.parametrize(
    "subject",
    [
        subjects.request("acme", RUN),
        subjects.inbox("acme", RUN, "3-1"),
        subjects.control("acme", RUN, "cancel-1"),
        subjects.call("acme", RUN, "Search_docs-2"),
        subjects.log("acme", RUN),
        subjects.stream("acme", RUN),
        subjects.live_log("acme", RUN),
        subjects.context("acme", RUN),
        subjects.timer("acme", RUN, "deadline"),
        subjects.due("acme", RUN, "deadline"),
    ],
)
def test_what_is_built_parses_back(subject: str) -> None:
    """Parsing returns the parts a subject was built from."""
    address = subjects.parse(subject)
    assert (address.tenant, address.run) == ("acme", RUN)
    assert subject.endswith(address.name)


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "inbox",
        f"inbox.acme.{RUN}",
        f"emit.acme.{RUN}.other",
        "inbox.a.b.c",
        f"x.acme.{RUN}",
        f"call.acme.{RUN}.a.b",
    ],
)
def test_foreign_subjects_are_refused(subject: str) -> None:
    """A subject of no known form is refused."""
    with pytest.raises(InvalidName):
        subjects.parse(subject)


def test_keys_parse_back() -> None:
    """Those of the index, of artifacts, of sessions and runs; no other key is taken for one."""
    assert keys.parse_run_key(keys.run_key("acme", 1_700_000_000_000, RUN)) == ("acme", RUN)
    assert keys.parse_reference_key(keys.reference_key("acme", RUN)) == ("acme", RUN)
    for where in (keys.listing("s", RUN), keys.listing(None, RUN), keys.listing("s", None)):
        assert keys.parse_listing_key(keys.listing_key("acme", where, RUN)) == ("acme", RUN)
    for parse in (keys.parse_run_key, keys.parse_reference_key, keys.parse_listing_key):
        for key in (
            "",
            "a",
            "a.b",
            "list.acme",
            f"acme.{RUN}",
            f"blob.acme.{RUN}",
            f"list.acme.-.-.{RUN}.x",
            f"{'x' * 99}.{RUN}",
        ):
            with pytest.raises(InvalidName):
                parse(key)


def test_ids_are_time_ordered_and_well_formed() -> None:
    """New ids are UUIDv7: version and variant are set, and later ids sort later."""
    made = [ids.new_id() for _ in range(200)]
    assert all(names.checked_id(one) == one and one[12] == "7" and one[16] in "89ab" for one in made)
    assert [one[:12] for one in made] == sorted(one[:12] for one in made)
    assert len(set(made)) == len(made)


def test_an_idempotency_key_names_one_run_per_tenant() -> None:
    """The same key of the same tenant gives the same id; another tenant's gives another."""
    assert ids.run_id_for_key("a", "k") == ids.run_id_for_key("a", "k") != ids.run_id_for_key("b", "k")
    assert names.checked_id(ids.run_id_for_key("a", "k"))
