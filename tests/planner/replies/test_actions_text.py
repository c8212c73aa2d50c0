"""Finding an action in the text of a reply, what each format accepts, and the complaint where there is none."""

import json

import pytest

from contracts.runs.decisions import PlannerAction
from services.planner.replies.actions.normalize import Normalized, normalize_action
from services.planner.replies.answer_stream import AnswerStream

SEARCH = '{"next_node": "search", "args": {"q": 1}}'
FINAL = '{"next_node": "final_response", "args": {"answer": "x"}}'


def nodes(result: Normalized) -> list[str]:
    """The node of the action, then those of the alternates."""
    assert (result.action is None) is (result.error is not None)
    return [action.next_node for action in (result.action, *result.alternates) if action]


@pytest.mark.parametrize("quotes", ['"""', "'''"])
def test_a_text_between_three_quotes(quotes: str) -> None:
    """Single quotes of its kind, line breaks and objects in it are content; without its end it is cut off."""
    text = f'{quotes}"x"\n{{\'y\'}} \\"z {quotes}'
    reply = f'{{"next_node": "final_response", "args": {{"answer": {text}, "confidence": 0.5}}}}'
    result = normalize_action(reply)
    assert result.action == PlannerAction(
        next_node="final_response", args={"answer": '"x"\n{\'y\'} "z ', "confidence": 0.5}
    )
    assert normalize_action(reply.replace(f"{quotes}, ", " ")).error == "unparseable"


@pytest.mark.parametrize(
    "reply",
    [
        f"```\n{SEARCH}\n```",
        f"~~~\n{SEARCH}\n~~~",
        f"Inline ```json {SEARCH}``` fence",
        f"```json\n{SEARCH}",
        f"<THINK>{FINAL}</THINK>{SEARCH}",
        f"<thinking>a</thinking><reasoning>{FINAL}</reasoning>{SEARCH}",
        f"<tool_call>{SEARCH}</tool_call>",
        f"[[{SEARCH}]]",
        f"{{{SEARCH}}}",
        f"In {{braces}}, {{}} and [1], [link](x), {{a: b}}: {SEARCH}",
        f"A lone {{ and a lone [ here. {SEARCH}",
        f'An example {{"q": ...}} first. {SEARCH}',
        f'The form is {{"next_node": <tool>, "args": {{...}}}}, so {SEARCH}',
        f'{{"example": 1}} {SEARCH}',
        f"```python\nx = {{}}\n```\n```json\n{SEARCH}\n```",
        f"```json\nnot json\n```\n```json\n{SEARCH}\n```",
        json.dumps(json.dumps(json.loads(SEARCH), indent=1)),
        "{'next_node': \"search\", 'args': {\"q\": 1}, 'plan': None}",
        '{"next_node": "search",\n\t"args": {"q": 1,}\r\n}',
        '{ // I look it up\n"next_node": "search", /* with */ "args": {"q": 1} // so\n}',
        f"{SEARCH} // so",
    ],
)
def test_an_action_in_its_wrappings(reply: str) -> None:
    """Prose, a byte order mark, fences, think tags, lists, encodings, Python."""
    result = normalize_action(reply)
    assert result.error is None, result.complaint
    assert result.action == PlannerAction(next_node="search", args={"q": 1})


def test_a_fence_inside_a_text_of_the_object_is_content() -> None:
    """In every way of escaping it."""
    answer = 'Write\n```json\n{"next_node": "rm", "args": {}}\n```\nand `{"a": 1}`.'
    action = json.dumps({"next_node": "final_response", "args": {"answer": answer}})
    raw = action.replace("\\n", "\n")
    for reply in (action, f"```json\n{action}\n```", raw, f"```json\n{raw}\n```"):
        result = normalize_action(reply)
        assert nodes(result) == ["final_response"]
        assert result.action is not None
        assert result.action.args == {"answer": answer}


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (f"{SEARCH}{FINAL}", ["search", "final_response"]),
        (f"[{FINAL}, {SEARCH}]", ["final_response", "search"]),
        (f"```json\n{FINAL}\n```\nor\n```json\n{SEARCH}\n```", ["final_response", "search"]),
        (f'{{"answer": "y"}} {SEARCH} {{"name": "t", "arguments": {{}}}}', ["search", "final_response", "t"]),
        ('{"answer": "y"} {"plan": []}', ["plan", "final_response"]),
        ('{"steps": []} {"name": "t", "arguments": {}}', ["plan", "t"]),
        (f'{{"next_node": 5}} {SEARCH}', ["search"]),
        (f"<think>{FINAL}</think>{SEARCH}", ["search"]),
        (f"<think>{FINAL}{SEARCH}", ["final_response", "search"]),
        (f"<think>{FINAL}</think>", ["final_response"]),
        (f"{SEARCH} <think>{FINAL}</think>", ["search"]),
    ],
)
def test_the_object_shaped_most_like_an_action_wins(reply: str, expected: list[str]) -> None:
    """Ties go to the first, further actions become alternates, thoughts are none; an error may have alternates too."""
    assert nodes(normalize_action(reply)) == expected


@pytest.mark.parametrize(
    "broken",
    [
        '{"next_node": "save", "args": {"answer": "secret"}',
        '{"next_node": "save", "args": {"answer": "secret"},',
        '{"next_node": "save", "args": {"answer": "secret"}, "note": "he said "hi""}',
        '{"next_node": "save" "args": {"answer": "secret"}}',
        '{"next_node": ',
        "{'next_node'",
        '{"next_node": "save", "next_node": "load", "args": {"answer": "secret"}}',
        '{"next_node": "save", "args": {"answer": "secret"}, "args": {}}',
        '{next_node: "save", args: {"answer": "secret"}}',
        '{next_node: "save", args: {"answer": "secret"}',
        '{"next_node"= "save", "args": {"answer": "secret"}}',
        '{\u201cnext_node\u201d: \u201csave\u201d, args: {"answer": "secret"}}',
        '[{"next_node": "save", "args": {"answer": "secret"}}',
        '[{"next_node": "save", "args": {}}, {"answer": "secret"',
        '{"tool_calls": [{"function": {"name": "save", "arguments": {"answer": "secret"}}}]',
        '{"next_node": "save", "args": {"score": NaN, "more": {"answer": "secret"}}}',
        '{"next_node": "save", "args": {"a": ' + "[" * 200 + '{"answer": "secret"}' + "]" * 200 + "}}",
        json.dumps('{"next_node": "save", "args": {"answer": "secret"}'),
        json.dumps('{"next_node": "save", "args": {"answer": "secret"}}')[:-4],
    ],
)
def test_nothing_inside_a_broken_action_is_ever_used(broken: str) -> None:
    """An answer after a broken action is not used either: the intended first action is lost."""
    for reply in (broken, f"Here:\n```json\n{broken}\n```", f"{broken}\n{FINAL}", f'{{"answer": "draft"}} {broken}'):
        result = normalize_action(reply)
        assert (result.action, result.error) == (None, "unparseable"), reply
        assert "no valid JSON" in result.complaint


@pytest.mark.parametrize(
    "reply",
    [
        f"<think>{FINAL}</think>{{",
        f"<think>{FINAL}</think>\n{{ \n",
        f"<think>{FINAL}</think>{{ // note\n",
        f'<think>{FINAL}</think>{{ // note\n"too',
        f'{{ -- note\n"tool": "save", "args": {json.dumps(FINAL)}}}',
        f'{{ # note\n"args": {json.dumps(FINAL)}, "tool": "save"}}',
        f'{{ ... "steps": [{{"node": "save", "args": {{"x": {json.dumps(FINAL)}}}}}]}}',
    ],
)
def test_what_began_and_went_wrong_is_not_replaced_by_a_draft(reply: str) -> None:
    """An action in its arguments does not replace it either."""
    assert nodes(normalize_action(reply)) == []


def test_another_fence_may_hold_a_broken_action_again() -> None:
    """Unless the broken one may have been final: then its answer was on the user's screen."""
    truncated = '{"next_node": "search", "args": {"q": '
    assert nodes(normalize_action(f"```json\n{truncated}\n```\nAgain:\n```json\n{SEARCH}\n```")) == ["search"]
    truncated = '{"next_node": "final_response", "args": {"answer": "Hel", '
    assert nodes(normalize_action(f"```json\n{truncated}\n```\nAgain:\n```json\n{FINAL}\n```")) == []


def test_behind_another_broken_object_only_an_explicit_action_counts() -> None:
    """An answer found there may be a part of the broken object."""
    assert nodes(normalize_action(f'{{"a": b}} {SEARCH}')) == ["search"]
    assert nodes(normalize_action('{"a": b} {"answer": "x"}')) == []


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        ("", "The reply is empty. Answer with one JSON object"),
        (" \n", "The reply is empty."),
        ("Just a text answer.", "The reply holds no JSON object."),
        ("[]", "The reply holds no JSON object."),
        ('"text"', "The reply holds no JSON object."),
        ("null", "The reply holds no JSON object."),
        ("{ curly }", "The reply holds no JSON object."),
        (
            '{"next_node": "a",\n "args": {"q": }}',
            'a value is expected, at line 2, column 16, after `{"next_node": "a",  "args": {"q": `',
        ),
        ('{"args": {}, "args": {}}', "`args` occurs twice in one object, at line 1, column 14"),
    ],
)
def test_a_reply_without_an_object_is_unparseable(reply: str, complaint: str) -> None:
    """The complaint names the fault, its place, and what is expected."""
    result = normalize_action(reply)
    assert (result.action, result.error) == (None, "unparseable")
    assert complaint in result.complaint
    assert "Answer with one JSON object" in result.complaint


def test_complaints_stay_short() -> None:
    """They go back to the model: a huge reply must not make a huge complaint."""
    for reply in (
        "{" + '"k": ' * 100_000,
        json.dumps({"k" * 10_000 + str(n): n for n in range(50)}),
        '{"next_node": "' + "x" * 100_000,
    ):
        assert len(normalize_action(reply).complaint) < 700


def test_the_complaint_names_the_form_that_was_asked_for() -> None:
    """The legacy prompt asks for five fields."""
    assert '"thought"' in normalize_action("text", action_format="legacy").complaint
    assert '"thought"' not in normalize_action("text").complaint


@pytest.mark.parametrize(
    ("reply", "native", "reasoning"),
    [
        (f"<think>a</think>b\n```json\n{SEARCH}\n```", None, "a\nb"),
        (SEARCH, None, None),
        (SEARCH, " native ", "native"),
        (f'{SEARCH[:-1]}, "thought": "own"}}', "native", "native"),
        (f'{SEARCH[:-1]}, "thought": " own "}}', "  ", "own"),
        ('{"thought": "outer", "action": {"thought": "inner", "next_node": "search"}}', None, "outer"),
        ('{"action": {"thought": "inner", "next_node": "search"}}', None, "inner"),
        (f"I look it up.\n```json\n{SEARCH}\n```\nafterwards", None, "I look it up."),
        (f"\ufeff<think>I look it up.</think>\n```json\n{SEARCH}\n```", None, "I look it up."),
        (f"```json\n{SEARCH}\n```", None, None),
        (f'Before.\n```json\n{SEARCH[:-1]}, "thought": "own"}}\n```', None, "own"),
        (f"I look it up.\n{SEARCH}", None, "I look it up."),
        (f"<think>I look it up.</think>{SEARCH}", None, "I look it up."),
        (f"<think>Not {{}}.</think>\nSo:\n{SEARCH} and {SEARCH}", None, "Not {}.\n\nSo:"),
        (f"I look it up.</think>\n[{SEARCH}]", None, "I look it up."),
        (f'Before. {SEARCH[:-1]}, "thought": "own"}}', None, "own"),
        (f'{SEARCH[:-1]}, "thought": ["no", "text"]}}', None, None),
        (f'{SEARCH[:-1]}, "thought": ""}}', None, None),
        ("no action at all", "native", "native"),
        ('{"thought": "own"}', None, "own"),
        (f'{SEARCH[:-1]}, "thought": "\\ud83d"}}', None, "\N{REPLACEMENT CHARACTER}"),
        (SEARCH, "\ud83d\ude00", "\N{GRINNING FACE}"),
    ],
)
def test_reasoning(reply: str, native: str | None, reasoning: str | None) -> None:
    """Native wins, then `thought`, then the text before the fence or the first object; never an error."""
    assert normalize_action(reply, native).reasoning == reasoning


def test_a_reply_may_be_parsed_already() -> None:
    """Then it is checked as strictly as text."""
    assert normalize_action([json.loads(SEARCH)]).action == normalize_action(SEARCH).action is not None
    for odd in (None, 5, {1}, b"{", [], [5, "x"], {"next_node": "a", "args": {"n": float("nan")}}):
        assert normalize_action(odd).error == "unparseable"


STEP = {"node": "a", "args": {"q": 1}}
FIVE = {"thought": "t", "next_node": "search", "args": {"q": 1}, "plan": None, "join": None}


@pytest.mark.parametrize(
    ("obj", "wrong"),
    [
        (FIVE, ""),
        ({"next_node": "search", "args": {"q": 1}}, ""),
        ({"thought": "t", "action": FIVE}, ""),
        ({**FIVE, "next_node": None, "args": {"answer": "x"}}, ""),
        ({**FIVE, "next_node": None, "plan": [STEP]}, ""),
        ({"next_node": "final_response", "args": {"answer": "x"}}, "next_node"),
        ({"next_node": "plan", "args": {"steps": [STEP]}}, "next_node"),
        ({"next_node": None, "args": {"steps": [STEP]}}, "steps"),
        ({**FIVE, "plan": {"steps": [STEP]}}, "plan"),
        ({**FIVE, "answer": "x"}, "answer"),
        ({"answer": "x"}, "answer"),
        ({"name": "search", "arguments": {"q": 1}}, "name"),
        ({"thought": "t", "plan": [STEP]}, "next_node"),
    ],
)
def test_the_legacy_format_takes_the_five_field_form_alone(obj: dict[str, object], wrong: str) -> None:
    """Fields may be left out but for the node; any other form is refused, with the field that is wrong."""
    for given in (json.dumps(obj), f"So:\n```json\n{json.dumps(obj)}\n```"):
        result = normalize_action(given, action_format="legacy", tools={"search"})
        assert (result.error is None) == (not wrong), result
        assert wrong in result.complaint
        shown = AnswerStream(action_format="legacy", tools={"search"})
        assert not (wrong and shown.feed(json.dumps(obj)))


def test_a_complaint_names_what_is_allowed() -> None:
    """Not what this run has not: background tasks, tools where there are none, JSON where calls are expected."""
    for tools in (frozenset({"search"}), frozenset[str]()):
        complaint = normalize_action("prose", tools=tools).complaint
        assert "task" not in complaint
        assert ("plan" in complaint) == bool(tools)
    for action_format in ("auto", "unified", "legacy"):
        named = [
            normalize_action("{", tools={"a"}, action_format=action_format, tasks=tasks) for tasks in (True, False)
        ]
        assert ['"task"' in each.complaint for each in named] == [True, False]
    refused = normalize_action("prose", tools={"search"})
    assert refused.complaint.startswith(refused.cause)
    assert "Answer with" not in refused.cause


def test_every_answer_that_is_dropped_is_named() -> None:
    """Fields beside the arguments are named too."""
    args = {"answer": "a", "text": "b", "mine": 1}
    reply = {"next_node": "final_response", "args": args, "note": "c", "content": "d"}
    result = normalize_action(json.dumps(reply))
    assert result.action == PlannerAction(next_node="final_response", args={"answer": "a", "mine": 1})
    assert [warning.split(" ")[0] for warning in result.warnings] == ["`text`", "`content`", "`note`"]


def unified(reply: str) -> Normalized:
    """A reply under the strict format."""
    return normalize_action(reply, action_format="unified")


def test_the_strict_format_takes_two_fields() -> None:
    """White space and a fence around them are no other form."""
    for reply in (f"```json\n{SEARCH}\n```", ' \ufeff{"args": {"q": 1}, "next_node": "search"}\n'):
        assert unified(reply).action == PlannerAction(next_node="search", args={"q": 1})


@pytest.mark.parametrize(
    ("reply", "error", "complaint"),
    [
        ('{"thought": "t", "next_node": "search", "args": {}}', "no_action", "`thought` is no field"),
        ('{"next_node": "search"}', "no_action", "`args` is missing"),
        ('{"next_node": null, "args": {"answer": "x"}}', "no_action", "`next_node` must be a text"),
        ('{"next_node": "", "args": {}}', "no_action", "`next_node` is empty"),
        ('{"next_node": "search", "args": "{}"}', "no_action", "`args` must be an object"),
        ('{"next_node": "final_response", "args": {"answer": 5}}', "no_action", "`args.answer` must be a text"),
        ('{"next_node": "plan", "args": {"steps": {}}}', "no_action", "`args.steps` must be a list"),
        ('{"next_node": "plan", "args": {"steps": [{"tool": "a"}]}}', "no_action", "`args.steps[0]` must be an object"),
        (
            '{"next_node": "plan", "args": {"steps": [{"node": "a", "args": []}]}}',
            "no_action",
            "`args.steps[0].args` must be",
        ),
        ('{"next_node": "plan", "args": {"steps": [], "join": "j"}}', "no_action", "`args.join` must be"),
        ('[{"next_node": "search", "args": {}}]', "no_action", "inside a list"),
        (json.dumps('{"next_node": "search", "args": {}}'), "no_action", "inside a text"),
        ('{"next_node": "a", "args": {}}{"next_node": "b", "args": {}}', "no_action", "more than one object"),
        ("{'next_node': 'search', 'args': {}}", "unparseable", "a key in quotes is expected, at line 1, column 2"),
        ('{"next_node": "search", "args": {},}', "unparseable", "a comma before the end"),
        ('{"next_node": "search", "args": {', "unparseable", "ends too early"),
        ("text", "unparseable", "no JSON object"),
    ],
)
def test_the_strict_format_refuses_the_rest(reply: str, error: str, complaint: str) -> None:
    """With the exact field and what was expected of it."""
    result = unified(reply)
    assert (result.action, result.error) == (None, error)
    assert complaint in result.complaint
