"""The demo model: questions and tools that its rules were not written for."""

from typing import Any

import pytest

from contracts.tools.messages import ToolSpec
from contracts.wire.faults import Fault
from services.planner.models import demo
from services.planner.models.types import Delta, Reply
from services.planner.replies.actions.normalize import normalize_action
from services.planner.run.state.history import PastTurn
from tests.support.demo_conversations import TEXT, WHOLE, Conversation, tool

EMAIL, DATE, URI = ({"type": "string", "format": kind} for kind in ("email", "date", "uri"))
LIMIT, CHART = {**WHOLE, "maximum": 20}, {"enum": ["bar", "line", "pie"]}
OFFICE = [
    tool("calculate", "Evaluate an arithmetic expression", "expression", expression=TEXT),
    tool("search_docs", "Search the handbook for passages about a topic", "query", query=TEXT, limit=LIMIT),
    tool("summarise_table", "Summarise a CSV file: rows, columns, totals per group", "path", path=TEXT, group_by=TEXT),
    tool("draw_chart", "Draw a chart of a CSV file", "file kind", file=TEXT, kind=CHART, title=TEXT),
    tool("get_weather", "Current weather of a city", "city", city=TEXT, unit={"enum": ["celsius", "fahrenheit"]}),
    tool("now", "The current date and time", timezone=TEXT),
    tool("list_tables", "List the tables of the database"),
    tool("run_sql", "Run a SQL query against the database", "sql", sql=TEXT),
]
SHOP = [
    tool("get_order", "Look up one order with its state", "order_id", order_id=TEXT),
    tool("send_email", "Send an email", "to subject body", side_effects="external", to=EMAIL, subject=TEXT, body=TEXT),
    tool("fetch_page", "Fetch a web page as text", "url", url=URI),
    tool("translate", "Translate text", "text target_language", text=TEXT, target_language=TEXT),
    tool("delete_file", "Delete a file for good", "path", side_effects="write", path=TEXT),
]
PLAY = [
    tool("roll_dice", "Roll dice", "count sides", count=WHOLE, sides=WHOLE),
    tool("shout", "Print a message in capitals", "message", message=TEXT),
    tool("countdown", "Count down slowly and report progress", "seconds", seconds={**WHOLE, "maximum": 60}),
    tool("book_table", "Reserve a table in a restaurant", "guests date", guests=WHOLE, date=DATE),
]
FILTERS = {"type": "array", "items": {"type": "object", "required": ["column", "op", "value"]}}
QUERY = tool("query_rows", "Read rows of a table: filtered, sorted.", "table_id", table_id=TEXT, filters=FILTERS)
STATUS = {"column": "Status", "op": "equals", "value": "open"}
PAY = {"column": "Pay", "op": "greater", "value": 100.0}


@pytest.mark.parametrize(
    ("tools", "question", "name", "args"),
    [
        (OFFICE, "What is 17*23?", "calculate", {"expression": "17*23"}),
        (
            [*OFFICE, QUERY],
            'Which rows of "people" have Status open and Pay over 100?',
            "query_rows",
            {"table_id": "people", "filters": [STATUS, PAY]},
        ),
        (OFFICE, "what's 17 times 23", "calculate", {"expression": "17*23"}),
        (OFFICE, "Calculate (12 + 8) / 4 - 1", "calculate", {"expression": "(12+8)/4-1"}),
        (OFFICE, "How much is 15% of 80?", "calculate", {"expression": "15/100*80"}),
        (OFFICE, "Please compute sqrt(16) + 3", "calculate", {"expression": "sqrt(16)+3"}),
        (OFFICE, "What is 1,200 divided by 4?", "calculate", {"expression": "1200/4"}),
        (OFFICE, 'Find "parental leave" in the handbook', "search_docs", {"query": "parental leave"}),
        (OFFICE, "How do I get a new badge?", "search_docs", {"query": "How do I get a new badge?"}),
        (OFFICE, "Summarise data/sales.csv", "summarise_table", {"path": "data/sales.csv"}),
        (OFFICE, "Draw a pie chart of sales.csv", "draw_chart", {"file": "sales.csv", "kind": "pie"}),
        (OFFICE, 'Plot a.csv as bars titled "U"', "draw_chart", {"file": "a.csv", "kind": "bar", "title": "U"}),
        (OFFICE, "What is the weather in New York?", "get_weather", {"city": "New York"}),
        (OFFICE, "Is it sunny in Paris, in fahrenheit?", "get_weather", {"city": "Paris", "unit": "fahrenheit"}),
        (OFFICE, "What day is it today?", "now", {}),
        (OFFICE, "Which tables does the database have?", "list_tables", {}),
        (OFFICE, "Run the SQL query `select 1`", "run_sql", {"sql": "select 1"}),
        (SHOP, "Where is order ORD-1017?", "get_order", {"order_id": "ORD-1017"}),
        (SHOP, "What is the state of order 4711?", "get_order", {"order_id": "4711"}),
        (SHOP, "Fetch https://example.org/a?b=1.", "fetch_page", {"url": "https://example.org/a?b=1"}),
        (SHOP, 'Translate "hi" into French', "translate", {"text": "hi", "target_language": "French"}),
        (SHOP, "Delete the file old.txt", "delete_file", {"path": "old.txt"}),
        (PLAY, f"Roll 2 dice with {10**29 + 1} sides", "roll_dice", {"count": 2, "sides": 10**29 + 1}),
        (PLAY, "Shout this message: the tea is ready", "shout", {"message": "the tea is ready"}),
        (PLAY, "Count down from 5 seconds", "countdown", {"seconds": 5}),
        (PLAY, "Book a table for 4 guests tomorrow", "book_table", {"guests": 4, "date": "2026-11-22"}),
    ],
)
def test_a_question_finds_its_tool(tools: list[ToolSpec], question: str, name: str, args: dict[str, Any]) -> None:
    """The words and values of the question choose the tool; the arguments come from the question."""
    assert Conversation(question, tools).decide() == (name, args)


def test_an_email_is_taken_apart() -> None:
    """Several strings, each in its place."""
    conversation = Conversation('Send an email to ann@example.org with subject "Lunch" saying "At noon?"', SHOP)
    assert conversation.decide() == ("send_email", {"to": "ann@example.org", "subject": "Lunch", "body": "At noon?"})


@pytest.mark.parametrize(
    ("tools", "question"),
    [
        (OFFICE, "Hello!"),
        (OFFICE, "Thank you very much"),
        (PLAY, "Who was the first president?"),
        (SHOP, "What happened to old.txt?"),
        (PLAY, "Count down from 500 seconds"),
        ([], "What is 17*23?"),
    ],
)
def test_where_nothing_fits_it_says_what_it_is(tools: list[ToolSpec], question: str) -> None:
    """No argument is invented, and no tool that changes something is called because of a stray word."""
    answer = Conversation(question, tools).answer()
    assert demo.NAME in answer
    assert "RUNWIRE_MODEL" in answer


def test_it_recalls_the_turn_before_where_nothing_fits() -> None:
    """The question may refer to it. Where a tool fits, past turns change nothing."""
    past = (PastTurn("Who is Ada?", "Nobody knows."), PastTurn("What is 2*3?", "2*3 = 6"))
    answer = Conversation("And who is she?", OFFICE, past=past).answer()
    assert 'Before this you asked "What is 2*3?", and the answer was "2*3 = 6".' in answer
    assert 'asked "Why?".' in Conversation("And who is she?", OFFICE, past=(PastTurn("Why?"),)).answer()
    assert Conversation("What is 17*23?", OFFICE, past=past).decide() == ("calculate", {"expression": "17*23"})


def test_it_summarises_a_conversation_by_listing_it() -> None:
    """What was summarised before comes first."""
    turns = [{"question": "Who is Ada?", "answer": "A\nmathematician."}, {"question": "Why?", "answer": "x" * 900}]
    context = {"summary": "- Hi: Hello.", "turns": turns}
    answer = Conversation("Summarise", [], cause="summary", llm_context=context).answer()
    assert answer == f"- Hi: Hello.\n- Who is Ada?: A mathematician.\n- Why?: {'x' * 120}"


@pytest.mark.parametrize(
    ("question", "observation", "answer"),
    [
        ("What is 17*23?", {"result": 391}, "17*23 = 391"),
        ("What is 17*23?", {"value": 391.0, "steps": []}, "17*23 = 391"),
        ("What is 10/4?", 2.5, "10/4 = 2.5"),
        ("What is 17*23?", "391", "17*23 = 391"),
        ("What is 17*23?", {"answer": "It is 391."}, "It is 391."),
        ("Summarise a.csv", {"summary": "Two.", "chart": "<artifact:dict size=9KB>"}, "Two.\nAttached: chart."),
        ("Summarise a.csv", {"rows": 2, "columns": ["a", "b"]}, 'rows: 2\ncolumns: ["a","b"]'),
        ("What time is it?", "12:30", "12:30"),
        ("Which tables does the database have?", ["a", "b"], "- a\n- b"),
        ("Which tables does the database have?", [], "list_tables returned nothing."),
        ("Find holidays", {"passages": [{"title": "Leave", "text": "Thirty days."}]}, "Leave: Thirty days."),
        ("Find holidays", [{"title": "A", "snippet": "one"}, {"title": "B", "snippet": "two"}], "- A: one\n- B: two"),
    ],
)
def test_a_result_becomes_an_answer(question: str, observation: Any, answer: str) -> None:
    """Whatever shape the tool chose for it."""
    conversation = Conversation(question, OFFICE)
    conversation.decide()
    conversation.observe(observation)
    assert conversation.answer() == answer


def test_two_questions_run_at_once() -> None:
    """Each clause has its own tool; the answers follow each other."""
    conversation = Conversation("What is 6*7, and what does the handbook say about holidays?", OFFICE)
    node, args = conversation.decide()
    assert node == "plan"
    assert [step["node"] for step in args["steps"]] == ["calculate", "search_docs"]
    conversation.observe({"result": 42}, {"answer": "Thirty days."})
    assert conversation.answer() == "6*7 = 42\n\nThirty days."


def test_after_a_failure_it_tries_the_next_tool() -> None:
    """Another tool is tried, and never the same call again."""
    conversation = Conversation("Draw a pie chart of sales.csv", OFFICE)
    assert conversation.decide()[0] == "draw_chart"
    conversation.observe(Fault(code="tool_error", reason="no such column"))
    assert conversation.decide() == ("summarise_table", {"path": "sales.csv"})
    assert "no such column" in conversation.reasoning
    conversation.observe({"summary": "Two rows."})
    assert conversation.answer() == "Two rows."


def test_when_everything_failed_it_says_what() -> None:
    """With the reason of each. Arguments that the checker refused are a failure, and are not sent again."""
    conversation = Conversation("What time is it?", OFFICE[5:6])
    conversation.decide()
    conversation.observe(Fault(code="tool_timed_out", reason="it said nothing for 30 s"))
    assert "now: it said nothing for 30 s" in conversation.answer()
    conversation = Conversation("What is 17*23?", OFFICE[:1])
    conversation.decide()
    conversation.complain("args.expression: too long")
    assert "args.expression: too long" in conversation.answer()


def test_its_last_decision_is_an_answer() -> None:
    """It answers when the budget leaves one decision."""
    conversation = Conversation("What is 17*23?", OFFICE)
    conversation.steps_left = 1
    assert demo.NAME in conversation.answer()


def test_the_text_alone_is_text() -> None:
    """No action around it, where only the text is wanted."""
    conversation = Conversation("What is 17*23?", OFFICE)
    conversation.decide()
    conversation.observe({"result": 391})
    assert conversation.reply(text_alone=True).text == "17*23 = 391"


@pytest.mark.parametrize("required", ["topic", "topic count"])
def test_an_argument_that_may_be_null_is_filled(required: str) -> None:
    """A list of types is how many libraries write an optional value."""
    topic, count = {"type": ["string", "null"]}, {"type": ["null", "integer"]}
    play = tool("tell_jokes", "Tell jokes about a topic", required, topic=topic, count=count)
    assert Conversation('Tell 3 jokes about the topic "tea", count 3', [play]).decide() == (
        "tell_jokes",
        {"topic": "tea", "count": 3},
    )


def test_the_callers_context_fills_arguments() -> None:
    """Values that the caller gives in `llm_context` are used."""
    conversation = Conversation("Look up the order, please", SHOP, llm_context={"order_id": "ORD-9"})
    assert conversation.decide() == ("get_order", {"order_id": "ORD-9"})


def test_it_replies_in_the_legacy_format_too() -> None:
    """Where the prompt asks for five fields."""
    conversation = Conversation("What is 17*23?", OFFICE, legacy=True)
    assert conversation.decide() == ("calculate", {"expression": "17*23"})
    conversation.observe({"result": 391})
    text = conversation.reply().text
    action = normalize_action(text, action_format="legacy").action
    assert action is not None
    assert (action.next_node, action.args["answer"]) == ("final_response", "17*23 = 391")


def test_a_tool_with_a_reserved_name_is_called_by_its_alias() -> None:
    """The tool is called under its own name."""
    planning = [tool("plan", "Plan a journey to a city", "city", city=TEXT)]
    conversation = Conversation("Plan a journey to Rome", planning)
    assert conversation.reply().text.startswith('{"next_node":"tool_plan"')
    assert conversation.decide() == ("plan", {"city": "Rome"})


def test_a_schema_of_structures_is_left_to_a_language_model() -> None:
    """Only texts, numbers and chosen values are filled."""
    person = {"type": "object", "properties": {"name": TEXT}, "required": ["name"]}
    invite = tool("invite", "Invite a guest", "guest", guest=person)
    assert demo.NAME in Conversation("Invite guest Ann Lee", [invite]).answer()


async def test_it_streams_like_any_other() -> None:
    """Reasoning first, then the action, in small pieces, with a usage that costs nothing."""
    request = Conversation("What is 17*23?", OFFICE).request()
    *deltas, reply = [piece async for piece in demo.DemoModel(pause_s=0).stream(request)]
    assert isinstance(reply, Reply)
    said = [delta for delta in deltas if isinstance(delta, Delta)]
    assert said[0].reasoning
    assert "".join(delta.reasoning for delta in said) == reply.reasoning
    assert "".join(delta.text for delta in said) == reply.text
    assert max(len(delta.text) for delta in said) <= 12
    assert (reply.usage.model_calls, reply.usage.cost_usd, reply.usage.estimated) == (1, 0, False)
    assert reply.usage.completion_tokens > 0
