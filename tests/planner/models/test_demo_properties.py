"""The demo model with arbitrary inputs: it always replies with a valid action."""

import json
import time
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from contracts.tools.messages import ToolSpec
from services.planner.conversation.encoding import Messages
from services.planner.models import demo
from services.planner.models.types import ModelRequest
from services.planner.replies.actions.normalize import normalize_action
from services.shared.json_schema.checks import complaints
from tests.support.demo_conversations import Conversation

# As a list it would fill a screen.
NAMES = st.sampled_from(
    "expression path query city count from_currency url kind items flag x date options".split()  # noqa: SIM905
)
LEAVES: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.sampled_from(
        [
            {"type": "string"},
            {"type": "integer"},
            {"type": "number"},
            {"type": "boolean"},
            {},
            {"type": ["string", "null"]},
        ]
    ),
    st.sampled_from(
        [
            {"type": "string", "minLength": 3},
            {"type": "string", "pattern": "^[A-Z]+$"},
            {"type": "integer", "maximum": 5},
        ]
    ),
    st.lists(st.sampled_from(["red", "dark blue", "7"]), min_size=1, unique=True).map(
        lambda options: {"enum": options}
    ),
    st.sampled_from(
        [
            {"$ref": "#/$defs/missing"},
            {"anyOf": [{"type": "null"}, {"type": "integer"}]},
            {"const": 4},
            {"format": "date"},
        ]
    ),
)


def objects(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of objects and lists."""
    properties = st.dictionaries(NAMES, inner, max_size=4)
    return st.one_of(
        properties.flatmap(
            lambda known: st.sets(st.sampled_from(sorted(known)) if known else st.nothing()).map(
                lambda required: {"type": "object", "properties": known, "required": sorted(required)}
            )
        ),
        inner.map(lambda items: {"type": "array", "items": items}),
    )


SCHEMAS = objects(st.recursive(LEAVES, objects, max_leaves=5)).filter(lambda schema: schema["type"] == "object")
TOOLS = st.lists(
    st.builds(
        ToolSpec,
        name=st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True),
        description=st.text(max_size=60),
        input_schema=SCHEMAS,
        tags=st.lists(st.text(max_size=8), max_size=2),
    ),
    max_size=4,
    unique_by=lambda spec: spec.name,
)
WORDS = """What is 17*23 3.5 -4 and then sales.csv dark blue red Paris USD EUR https://a.b/c a@b.cd 2026-11-20 today
#12 ORD-7 ? ; ( ) " ' `"""
PARTS = st.sampled_from(WORDS.split())
QUESTIONS = st.one_of(st.text(min_size=1, max_size=80), st.lists(PARTS, min_size=1, max_size=12).map(" ".join))
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20)
)
KEYS = st.sampled_from(["answer", "result", "title", "text", "x"])
OBSERVATIONS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3), max_leaves=8
)


@given(question=QUESTIONS, tools=TOOLS, observation=OBSERVATIONS)
def test_every_reply_can_be_carried_out(question: str, tools: list[ToolSpec], observation: Any) -> None:
    """A tool of the catalogue with arguments that its schema takes, or an answer; after a result always an answer."""
    conversation = Conversation(question, tools)
    node, _ = conversation.decide()
    specs = {spec.name: spec for spec in tools}
    if node != "final_response":
        for call in conversation.calls:
            assert not complaints(call.args, specs[call.tool].input_schema)
        conversation.observe(*[observation] * len(conversation.calls))
        assert conversation.answer().strip()


@given(text=st.text(max_size=300))
def test_pieces_always_add_up(text: str) -> None:
    """Nothing of a reply is lost in cutting it."""
    assert "".join(demo.pieces(text)) == text


def test_a_request_without_facts_is_answered() -> None:
    """Such as a triage or a critique. The answer says that it knows nothing."""
    text = demo.play(ModelRequest(model=demo.NAME, messages=Messages.of([{"role": "user", "content": "Judge."}]))).text
    assert normalize_action(text).action is not None


def test_a_very_long_question_costs_little() -> None:
    """Of a text that its patterns would take minutes for, only the beginning is read."""
    for piece in ("a.", "1+", "((", "A ", "'", "x-", "1,1"):
        conversation = Conversation(
            piece * 50_000, [ToolSpec(name="search", input_schema={"properties": {"query": {"type": "string"}}})]
        )
        begun = time.process_time()
        json.loads(conversation.reply().text)
        assert time.process_time() - begun < 5
