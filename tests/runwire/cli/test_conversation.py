"""`runwire chat` beside a whole system: in this process where lines are typed, in a terminal where Ctrl-C is."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from contracts.wire.names import new_id
from tests.runwire.conftest import Ended, document, printed, runwire
from tests.support.images import with_metadata
from tests.support.terminal import CTRL_C, CTRL_D, Terminal
from tests.support.waiting import wait_until_blocking

pytestmark = pytest.mark.usefixtures("slow_tools")
LETTERS = str.maketrans("0123456789", "ghijklmnop")
REPORT = "Send a report to ann@example.org: 'All is well'"
Chat = Callable[..., Terminal]


def typed(up: Path, *lines: str, options: tuple[str, ...] = ()) -> Ended:
    """A conversation in which these lines are typed, each when something is asked."""
    ended = runwire("chat", *options, data=up, stdin="".join(f"{line}\n" for line in lines))
    assert ended.returncode == 0, ended.stderr
    return ended


def assert_order(shown: str, *texts: str) -> None:
    place = 0
    for text in texts:
        place = shown.find(text, place)
        assert place >= 0, f"{text!r} is not shown: {shown!r}"
        place += len(text)


@pytest.fixture
def chat(up: Path) -> Iterator[Chat]:
    """Opens conversations in terminals, each up to its prompt."""
    opened: list[Terminal] = []

    def open_terminal(*arguments: str) -> Terminal:
        opened.append(Terminal(up, "chat", *arguments))
        opened[-1].shows("session ", "you> ")
        return opened[-1]

    yield open_terminal
    for terminal in opened:
        terminal.close()


def test_questions_and_answers(chat: Chat, up: Path) -> None:
    """Until Ctrl-D; a later conversation shows what was said and goes on."""
    session = new_id()
    first = chat("--session", session)
    first.type("What is 17*23?")
    first.shows("→ calculate", "17*23 = 391", "answer_complete", "you> ")
    first.type(CTRL_D)
    assert first.ended() == 0
    first.shows(f"chat --session {session} goes on with it")
    second = typed(up, "Which one was that?", options=("--session", session)).stdout
    assert_order(second, "What is 17*23?", "17*23 = 391", "you> ", 'Before this you asked "What is 17*23?"', "you> ")


def test_commands_of_the_prompt(up: Path) -> None:
    """An agent, an image, and help for what is no command."""
    (up / "seen.png").write_bytes(with_metadata("png"))
    ended = typed(up, "/agent nobody", "Hello?", "/image nowhere.png", "/image seen.png", "/what")
    assert_order(ended.stdout, "nobody is asked from now on", "the next question shows seen.png", "/image FILE shows")
    assert "nowhere.png" in ended.said


def test_a_report_on_background_tasks_is_shown(chat: Chat, up: Path) -> None:
    """With the next answer, or when Enter is pressed. Each once."""
    session = new_id()
    terminal = chat("--session", session)
    terminal.type("In the background: What is 6*7? What is 2+2?")
    terminal.shows("→ task", "answer_complete", "you> ")

    def has_report() -> bool:
        found = document("sessions", session, data=up)
        return any(run["cause"] == "report" and run["ended_at"] for run in found["recent_runs"])

    wait_until_blocking(has_report, what="the report has ended")
    terminal.type("")
    terminal.shows("report", "6*7 = 42", "2+2 = 4", "you> ")
    terminal.type("What is 1+2?")
    terminal.shows("1+2 = 3", "answer_complete", "you> ")
    assert terminal.text.count("6*7 = 42") == 1


@pytest.mark.parametrize(
    ("lines", "options", "shown"),
    [
        (
            [REPORT, "a"],
            (),
            ["approval · send_report", 'to = "ann@example.org"', 'text = "All is well"', "← send_report"],
        ),
        (
            [REPORT, "r", "Ann is on leave"],
            (),
            ["[l]ater> ", "why, for the model> ", "reject", "✗ send_report", "Ann is on leave"],
        ),
        (
            ["Paint the thing 'fence'", "red"],
            (),
            ["input · paint", "Which colour for fence?", "answer, /reject or /later> ", "painted fence red"],
        ),
        (
            ["In the background: What is 6*7?", "w"],
            ("--agent", "careful"),
            ["confirmation · task.spawn", "Start this in the background?", "← task.spawn", "6*7 = 42"],
        ),
    ],
    ids=["approve", "reject", "answer", "confirm and wait"],
)
def test_a_person_decides_in_place(up: Path, lines: list[str], options: tuple[str, ...], shown: list[str]) -> None:
    """About a call, with its arguments shown; about a question of a tool; about a background task."""
    assert_order(typed(up, *lines, options=options).stdout, *shown, "you> ")


def test_a_table_is_made_and_filled(up: Path) -> None:
    """A proposal is drawn and applied in place, as a whole or in part, and the next turn knows what came of it."""
    session, name = ("--session", new_id()), f"Birds{new_id().translate(LETTERS)}"
    made = typed(up, f"track my {name}", "a", options=(*session, "--page", "tables_list")).stdout
    assert_order(made, "I propose a table", "Create table", "+ Name text", "apply [a]ll", "3 applied, 0 failed")
    table_id = next(line.split()[0] for line in printed("tables", "ls", data=up).splitlines() if name in line)
    on_page = (*session, "--page", "table_view", "--table", table_id)
    filled = typed(up, "add three rows", "0 2", "What became of that?", options=on_page).stdout
    assert_order(
        filled, "I propose 3 rows", 'Name: "Name 1"', "2 applied, 0 failed", "chose 2 of 3 operations", "could say"
    )


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


def test_ctrl_c_cancels_the_run_and_leaves_at_the_prompt(chat: Chat) -> None:
    """With `/cancel`; the next question is answered. Without a traceback."""
    terminal = chat()
    terminal.type(f"Ponder the topic '{new_id()}'")
    terminal.shows("→ ponder")
    terminal.type(CTRL_C)
    terminal.shows("add> ")
    terminal.type("/cancel")
    terminal.shows("cancelled", "you> ")
    terminal.type("What is 6*7?")
    terminal.shows("6*7 = 42", "you> ")
    terminal.type(CTRL_C)
    assert terminal.ended() == 130
    assert "Traceback" not in terminal.text
