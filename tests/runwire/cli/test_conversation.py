"""`runwire chat` in a terminal, beside a whole system."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contracts.wire.ids import new_id
from tests.runwire.conftest import runwire
from tests.support.terminal import CTRL_C, CTRL_D, Terminal
from tests.support.waiting import wait_until_blocking

pytestmark = [pytest.mark.xdist_group("cli"), pytest.mark.usefixtures("slow_tools")]
REPORT = "Send a report to ann@example.org: 'All is well'"
Chat = Callable[..., Terminal]


@pytest.fixture
def chat(up: Path) -> Iterator[Chat]:
    """Opens conversations, each up to its prompt."""
    opened: list[Terminal] = []

    def open_terminal(*arguments: str) -> Terminal:
        opened.append(Terminal(up, "chat", *arguments))
        opened[-1].shows("session ", "you> ")
        return opened[-1]

    yield open_terminal
    for terminal in opened:
        terminal.close()


def test_questions_and_answers(chat: Chat) -> None:
    """Until Ctrl-D; a later conversation shows what was said and goes on."""
    session = new_id()
    first = chat("--session", session)
    first.type("What is 17*23?")
    first.shows("→ calculate", "17*23 = 391", "answer_complete", "you> ")
    first.type(CTRL_D)
    assert first.ended() == 0
    first.shows(f"chat --session {session} goes on with it")

    second = chat("--session", session)
    second.shows("What is 17*23?", "17*23 = 391", "you> ")
    second.type("Which one was that?")
    second.shows('Before this you asked "What is 17*23?"', "you> ")


def test_a_report_on_background_tasks_is_shown(chat: Chat, up: Path) -> None:
    """With the next answer, or when Enter is pressed. Each once."""
    session = new_id()
    terminal = chat("--session", session)
    terminal.type("In the background: What is 6*7? What is 2+2?")
    terminal.shows("→ task", "answer_complete", "you> ")

    def has_report() -> bool:
        found = json.loads(runwire("sessions", session, "-o", "json", data=up).stdout)
        return any(run["cause"] == "report" and run["ended_at"] for run in found["recent_runs"])

    wait_until_blocking(has_report, what="the report has ended")
    terminal.type("")
    terminal.shows("report", "6*7 = 42", "2+2 = 4", "you> ")
    terminal.type("What is 1+2?")
    terminal.shows("1+2 = 3", "answer_complete", "you> ")
    assert terminal.text.count("6*7 = 42") == 1


def test_a_call_is_approved_in_place(chat: Chat) -> None:
    """With its arguments shown; it is executed as they were."""
    terminal = chat()
    terminal.type(REPORT)
    terminal.shows("approval · send_report", 'to = "ann@example.org"', 'text = "All is well"', "[l]ater> ")
    terminal.type("a")
    terminal.shows("← send_report", "The report was sent to ann@example.org", "you> ")


def test_a_background_task_is_confirmed_in_place(chat: Chat) -> None:
    """The person may have the run wait for it."""
    terminal = chat("--agent", "careful")
    terminal.type("In the background: What is 6*7?")
    terminal.shows("confirmation · task.spawn", "Start this in the background?", "[l]ater> ")
    terminal.type("w")
    terminal.shows("← task.spawn", "6*7 = 42", "you> ")


def test_a_call_is_edited_in_place(chat: Chat, up: Path) -> None:
    """What is no JSON, or does not fit the tool, is asked for again."""
    terminal = chat()
    terminal.type(REPORT)
    for args, said in (("to bob", "that is no JSON"), ('{"to": 3}', "invalid_input")):
        terminal.shows("[l]ater> ")
        terminal.type("e")
        terminal.shows("as JSON> ")
        terminal.type(args)
        terminal.shows(said)
    terminal.shows("[l]ater> ")
    terminal.type("e")
    terminal.shows("as JSON> ")
    terminal.type('{"to": "bob@example.org", "text": "Edited."}')
    terminal.shows("The report was sent to bob@example.org", "you> ")
    assert any("Edited." in file.read_text() for file in (up / "outbox").iterdir())


def test_a_call_is_rejected_in_place(chat: Chat) -> None:
    """The model reads why."""
    terminal = chat()
    terminal.type(REPORT)
    terminal.shows("[l]ater> ")
    terminal.type("r")
    terminal.shows("why, for the model> ")
    terminal.type("Ann is on leave")
    terminal.shows("reject", "✗ send_report", "Ann is on leave", "you> ")


def test_a_question_of_a_tool_is_answered_in_place(chat: Chat) -> None:
    """By a text, where the tool wants one."""
    terminal = chat()
    terminal.type("Paint the thing 'fence'")
    terminal.shows("input · paint", "Which colour for fence?", "answer, /reject or /later> ")
    terminal.type("red")
    terminal.shows("painted fence red", "you> ")


def test_what_is_left_for_later_is_decided_elsewhere(chat: Chat, up: Path) -> None:
    """And by the next question of the conversation: it rejects what waits, with its text as note."""
    terminal = chat()
    terminal.type(REPORT)
    terminal.shows("[l]ater> ")
    terminal.type("l")
    terminal.shows("approvals --run ", "you> ")
    run = terminal.text.rpartition("approvals --run ")[2].split()[0]
    assert "send_report" in runwire("approvals", "--run", run, data=up).stdout
    terminal.type("Not to Ann, she has left")
    terminal.shows("added to the run that is under way", "✗ send_report", "Not to Ann, she has left", "you> ")


def test_ctrl_c_adds_to_the_run(chat: Chat, up: Path) -> None:
    """And the run is followed on, with nothing lost and nothing shown twice."""
    terminal, topic = chat(), new_id()
    terminal.type(f"Ponder the topic '{topic}'")
    terminal.shows("→ ponder")
    terminal.type(CTRL_C)
    terminal.shows("The run goes on", "add> ")
    terminal.type("and in euros")
    terminal.shows("+ added: and in euros")
    (up / topic).touch()
    terminal.shows("← ponder", f"pondered {topic}", "you> ")
    assert terminal.text.count("→ ponder") == terminal.text.count("+ added") == 1


def test_ctrl_c_cancels_the_run_and_not_the_conversation(chat: Chat) -> None:
    """With `/cancel`; the next question is answered."""
    terminal = chat()
    terminal.type(f"Ponder the topic '{new_id()}'")
    terminal.shows("→ ponder")
    terminal.type(CTRL_C)
    terminal.shows("add> ")
    terminal.type("/cancel")
    terminal.shows("cancelled", "you> ")
    terminal.type("What is 6*7?")
    terminal.shows("6*7 = 42", "you> ")


def test_ctrl_c_twice_leaves_and_the_run_goes_on(chat: Chat, up: Path) -> None:
    """The next conversation in the session follows it."""
    session, topic = new_id(), new_id()
    terminal = chat("--session", session)
    terminal.type(f"Ponder the topic '{topic}'")
    terminal.shows("→ ponder")
    terminal.type(CTRL_C)
    terminal.shows("add> ")
    terminal.type(CTRL_C)
    assert terminal.ended() == 130
    assert "Traceback" not in terminal.text
    (up / topic).touch()
    again = chat("--session", session)
    again.shows(f"pondered {topic}", "you> ")


def test_ctrl_c_at_the_prompt_leaves(chat: Chat) -> None:
    """Without a traceback."""
    terminal = chat()
    terminal.type(CTRL_C)
    assert terminal.ended() == 130
    assert "Traceback" not in terminal.text
