"""Subjects are built and parsed in one module, which refuses everything that is not well-formed."""

import string
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.wire import keys, names, subjects
from contracts.wire.names import InvalidName
from contracts.wire.subject import PARAMETERS, Subject
from tests.contracts.wire.examples import EXAMPLES, RUN, TABLE, example, parameters_of

HOSTILE = [
    *("", "*", ">", "a.b", "a b", "a\r\nb", "a\nb", "a\tb", "a\x00b", "x" * 5000, "é", "Ａ", "٣" * 32, "a\u200b"),
    *("run\n", " run", "../x", "$SRV", "%2e"),
]
OTHER_BUILDERS: dict[str, Callable[[str], str]] = {
    "live": lambda name: subjects.live("default", name),
    "calls_consumer": subjects.calls_consumer,
    "run_key": lambda name: keys.run_key("default", 1, name),
}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_row_refuses_hostile_names(row: Subject) -> None:
    """In each place, in words that show at most a little of it; and names in other number."""
    values = [EXAMPLES[parameter] for parameter in parameters_of(row)]
    for position, parameter in enumerate(parameters_of(row)):
        for hostile in HOSTILE:
            if parameter == "model" and not hostile.strip("x"):
                continue  # The name of a model is an operator's own, of any length.
            with pytest.raises(InvalidName) as refused:
                row(*values[:position], hostile, *values[position + 1 :])
            assert len(str(refused.value)) < 180
            with pytest.raises(InvalidName):
                row.pattern(**{parameter: hostile})
    with pytest.raises(TypeError):
        row(*values, RUN)
    with pytest.raises(TypeError):
        row.pattern(other=RUN)


@pytest.mark.parametrize("builder", OTHER_BUILDERS)
def test_no_subject_is_built_from_a_hostile_name(builder: str) -> None:
    """Whatever is no plain name is refused."""
    for hostile in HOSTILE:
        with pytest.raises(InvalidName):
            OTHER_BUILDERS[builder](hostile)


@given(st.text(), st.sampled_from([row for row in TABLE if parameters_of(row)]), st.randoms())
def test_a_subject_has_exactly_its_own_tokens(name: str, row: Subject, random: Random) -> None:
    """Any text either is refused or adds exactly one token, without a wildcard."""
    values = [EXAMPLES[parameter] for parameter in parameters_of(row)]
    values[random.randrange(len(values))] = name
    try:
        built = row(*values)
    except InvalidName:
        return
    assert built.count(".") == row.address.count(".")
    assert set(built) <= set(string.ascii_letters + string.digits + "._-$=/")
    assert row.parsed(built) == tuple(values)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_what_is_built_parses_back(row: Subject) -> None:
    """And is of the row's own pattern; nothing longer or shorter is taken for it."""
    values = tuple(EXAMPLES[parameter] for parameter in parameters_of(row))
    assert row.parsed(example(row)) == values
    assert row.begins(example(row))
    assert row.pattern(**dict(zip(parameters_of(row), values, strict=True))) == example(row)
    for other in (f"{example(row)}.x", f"{example(row)}\n", "", row.all if "*" in row.all else "x"):
        with pytest.raises(InvalidName):
            row.parsed(other)


@pytest.mark.parametrize("row", subjects.SUBJECTS, ids=lambda row: row.name)
def test_the_stream_of_a_subject_is_that_of_the_table(row: Subject) -> None:
    """A probe goes to any stream, so it has none."""
    assert subjects.stream_of(example(row)) == (row.kept_in if row.kept_in in subjects.KEPT_FOR else None)
    assert subjects.stream_of(subjects.bucket_value("runs", "a.b")) == "KV_runs"


def test_subjects_of_runs_are_parsed() -> None:
    """Into kind, tenant, run and the rest; others are refused."""
    for row in (subjects.request, subjects.context):
        assert subjects.parse(row("acme", RUN)) == (row.name, "acme", RUN, "")
    for row in (subjects.inbox, subjects.control, subjects.timer, subjects.due, subjects.session_inbox, subjects.call):
        assert subjects.parse(row("acme", RUN, "3-1")) == (row.name, "acme", RUN, "3-1")
    assert subjects.parse(subjects.log("acme", RUN)) == ("emit", "acme", RUN, "log")
    assert subjects.parse(subjects.live_stream("acme", RUN)) == ("run", "acme", RUN, "stream")
    for foreign in (
        *("", "inbox", f"inbox.acme.{RUN}", f"emit.acme.{RUN}.other", "inbox.a.b.c", f"x.acme.{RUN}"),
        *(f"call.acme.{RUN}.a.b", f"emit.acme.{RUN}.x.log", subjects.session_log("acme", RUN)),
    ):
        with pytest.raises(InvalidName):
            subjects.parse(foreign)


def test_every_parameter_is_used() -> None:
    """And every form of a name refuses a dot, on which the check of a whole subject relies."""
    assert {parameter for row in TABLE for parameter in parameters_of(row)} == set(PARAMETERS)
    for parameter in PARAMETERS.values():
        with pytest.raises(InvalidName):
            parameter.form.checked("a.b")


def test_ids_are_time_ordered_and_well_formed() -> None:
    """New ids are UUIDv7: version and variant are set, and later ids sort later."""
    made = [names.new_id() for _ in range(200)]
    assert all(names.checked_id(one) == one and one[12] == "7" and one[16] in "89ab" for one in made)
    assert [one[:12] for one in made] == sorted(one[:12] for one in made)
    assert len(set(made)) == len(made)
