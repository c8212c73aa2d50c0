"""How an open pause is shown, named and answered in a terminal; and a proposal, whatever a model has written."""

import io
from typing import Any

import pytest
from rich.console import Console

from runwire.cli.pauses import answer_of, form_of, name_of, named, print_pause, print_proposal
from runwire.client import OpenPause, ProposalView
from runwire.errors import NotFound, PauseChanged

FIRST, SECOND = "a" * 32, "b" * 32


def pause(pause_id: str = FIRST, **fields: Any) -> OpenPause:
    """A call that waits for approval."""
    wanted = {"run_id": "0" * 32, "reason": "approval", "source": "policy", "tool": "pay", "expires_at": 0}
    return OpenPause(pause_id=pause_id, **{**wanted, **fields})


def shown(it: OpenPause) -> str:
    out = io.StringIO()
    print_pause(it, Console(file=out, width=60, soft_wrap=True, highlight=False))
    return out.getvalue()


def test_a_name_stands_for_one_pause() -> None:
    """By its first digits, by all of them, or alone."""
    pauses = [pause(), pause(SECOND)]
    assert named(pauses, "aaaaaaaa") is named(pauses, FIRST) is pauses[0]
    assert named(pauses, name_of(SECOND, 1)) is pauses[1]
    assert named(pauses[:1], "") is pauses[0]
    for name, said in (("c", "no open pause named c"), ("", "2 open pauses, aaaaaaaa, bbbbbbbb, to choose from")):
        with pytest.raises(NotFound, match=said):
            named(pauses, name)


def test_a_name_never_stands_for_what_has_changed_since() -> None:
    """The revision is a part of it, unless it is the first."""
    changed = pause(revision=2)
    assert name_of(FIRST, 2) == "aaaaaaaa.2"
    assert named([changed], "aaaaaaaa.2") is changed
    for name in ("aaaaaaaa", "aaaaaaaa.1", "aaaaaaaa.3"):
        with pytest.raises(PauseChanged):
            named([changed], name)
    assert named([changed], "") is changed


def test_a_call_of_a_plan_is_shown_in_its_plan() -> None:
    """One line a call, with its templates; the one that waits is marked."""
    calls = [{"tool_name": "find", "arguments": {"q": "x"}}, {"tool_name": "pay", "arguments": {"to": "$0.output.id"}}]
    text = shown(pause(arguments={"to": "ann"}, payload={"plan": {"reasoning": "", "calls": calls}, "call": 1}))
    assert '  0 find {"q": "x"}' in text
    assert '→ 1 pay {"to": "$0.output.id"}' in text
    assert "shown to you" in shown(pause(payload={"plan": 5, "call": 1}))


def test_nothing_of_a_pause_controls_the_terminal() -> None:
    """Its arguments are a model's, its payload and title a tool's."""
    arguments, title = {"to\x1b[2J": "a\x1b]0;title\x07\u202eb"}, "[red]no\x1b[2J\nway"
    others: dict[str, Any] = {"payload": {"x": "\u202e"}, "tool": "p\x1b", "input_schema": {"title": "\u2066"}}
    text = shown(pause(arguments=arguments, title=title, **others))
    assert not {"\x1b", "\x07", "\u202e", "\u2066"} & set(text)
    assert "[red]no\ufffd[2J way" in text


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        (None, "blue", "blue"),
        ({"type": "string"}, "3", "3"),
        ({"type": "integer"}, "3", 3),
        ({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}, "Ulm", {"city": "Ulm"}),
        ({"type": "object", "properties": {"city": {"type": "string"}}}, '{"city": "Ulm"}', {"city": "Ulm"}),
    ],
)
def test_a_text_stands_for_the_value_that_is_wanted(schema: dict[str, Any] | None, text: str, value: Any) -> None:
    """Itself, one field, or JSON."""
    assert answer_of(pause(reason="input", input_schema=schema), text) == value


def test_an_answer_of_simple_values_is_a_form() -> None:
    """Each field with its bounds and meaning; anything else stays a schema."""
    schema = {
        "type": "object",
        "properties": {
            "colour": {"type": "string", "minLength": 1, "title": "Colour", "description": "of the fence"},
            "coats": {"type": "integer", "maximum": 3},
            "size": {"enum": ["s", 1]},
            "dry": {"type": "boolean"},
        },
        "required": ["colour", "dry"],
    }
    fields = form_of(schema)
    assert [field.shown for field in fields] == [
        "colour (string, minLength 1): of the fence",
        "coats (integer, maximum 3, optional)",
        'size (enum ["s", 1], optional)',
        "dry (boolean)",
    ]
    texts = ("7", "2", "s", "yes")
    assert [field.value(text) for field, text in zip(fields, texts, strict=True)] == ["7", 2, "s", True]
    with pytest.raises(ValueError, match="Expecting"):
        fields[1].value("two")
    assert "answer: colour (string, minLength 1): of the fence" in shown(pause(input_schema=schema))
    for other in (
        {"type": "string"},
        {**schema, "oneOf": []},
        {"type": "object", "properties": {"a": {"type": "array"}}},
    ):
        assert form_of(other) == []
        assert "properties" not in other or '"properties"' in shown(pause(input_schema=other))


OPERATIONS = [
    {"action": "update", "row_id": 7, "changes": {"col_1": "b"}},
    7,
    {"action": ["add"], "data": [1]},
    {"action": "add", "data": "text"},
    {"action": "remove", "column_id": ["col_1"]},
    {"action": "reorder", "column_id": "col_1", "after_column_id": {}},
]


def test_columns_have_their_names_whatever_came_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Also once it is applied; and what is no operation keeps its number."""
    of = {"proposal_id": "1f" * 16, "session_id": "s", "run_id": "2f" * 16, "kind": "data_proposal", "summary": "Six"}
    given = {"state": "applied", "data": {"operations": OPERATIONS}, "view": {"names": {"col_1": "Stage"}}}
    print_proposal(ProposalView.model_validate(of | given))
    shown = capsys.readouterr().out
    lines = [line.strip() for line in shown.splitlines()[1:]]
    assert lines[0].endswith('row 7  Stage: "b"'), shown
    assert [int(line.split()[0]) for line in lines] == [*range(len(OPERATIONS))], shown
    assert "Stage" in lines[5]
