"""The playground in Chromium: one path through it, hostile answers, and that what ships is what was built."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from runwire.local.launch import remembered
from services.gateway.auth.guard import COOKIE
from services.gateway.auth.key_lines import new_key
from tests.browser.page_tools import LARGE
from tests.support.builds import INSTALL, build, built_typescript
from tests.support.model_server import ModelServer, Say, action, answer
from tests.support.needs import needs_program
from tests.support.up import ROOT, running_up

pytestmark = pytest.mark.timeout(400)

HERE = Path(__file__).parent
Seen = Callable[..., dict[str, Any]]
CASES: list[dict[str, Any]] = json.loads((HERE / "playground" / "hostile.json").read_text(encoding="utf-8"))

KEY, LINE = new_key("default", {"name": "desk"})
READER, READERS_LINE = new_key("default", {"name": "reader", "rights": ""})
AGENTS = {
    "default": {"tasks": {"spawn_requires_confirmation": False}},
    "plans": {"strategy": "planned", "description": "Plans all calls first."},
    "scripted": {"model": "openai/scripted", "description": "Says what the test has written."},
}
PAGES = """
[client_actions.fly]
description = "Nothing that the playground knows."
[pages.orders]
description = "Orders"
client_actions = ["fly"]
tabs.late.subtabs.weeks.persona = "They ask for weeks."
"""
FOUND = {
    "confidence": 0.5,
    "route": "partial",
    "warnings": ["Only a part was read."],
    "sources": [{"title": "Sales of 2024", "url": "https://example.org/sales"}],
}
ACTIONS = [{"label": name.title(), "action": name, "handler": "client"} for name in ("fly", "close_chat")]
REST = f"https://example.org/{'rest/' * 20}"
LONG = "\r\n\r\n".join(f"Paragraph {number} of [**many**][all]." for number in range(400))
TOOLS = [*(ROOT / "examples" / "demo" / f"{name}.py" for name in ("report", "table")), HERE / "page_tools.py"]
TOOLS += [ROOT / "examples" / "quickstart" / "asking_tool.py"]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a `runwire up` with the demo model and a scripted one, a page of its own, tools and tables."""
    data = tmp_path_factory.mktemp("playground")
    (data / "agents.json").write_text(json.dumps(AGENTS), encoding="utf-8")
    (data / "pages.toml").write_text(PAGES, encoding="utf-8")
    with ModelServer() as model:
        answered = answer("East grew most [1], and `[1]` is code; [9] is nothing.", **FOUND)
        model.by_turn(action("gather_findings"), answered, marker="Gather the findings")
        model.say(Say(text=f"Soon.\nSUGGESTED_ACTIONS: {json.dumps(ACTIONS)}"), marker="When do they come?")
        for number, case in enumerate(CASES):
            replies = action("show_case", number=number), answer(case.get("markdown") or "Drawn.")
            model.by_turn(*replies, marker=f"Case {number:03}")
        long = answer(f"{LONG}\n\nSee {REST}\n\n[all]: https://example.org/all").text
        model.by_turn(Say(text=long, piece=20, pause_s=0.002), marker="Write it all down")
        with running_up(
            data,
            *(part for tool in TOOLS for part in ("--tools", str(tool))),
            RUNWIRE_AGENTS_FILE=str(data / "agents.json"),
            RUNWIRE_PAGES_FILE=str(data / "pages.toml"),
            RUNWIRE_MODEL_API_BASE=model.url,
            RUNWIRE_MODEL_API_KEY="none",
            RUNWIRE_MODEL_VISION='{"openai/scripted": false}',
        ):
            yield remembered(data)["url"]


@pytest.fixture(scope="module", name="seen")
def _seen(scripts: Path) -> Iterator[Seen]:
    """How a script is run in a browser that all share, for what it has seen; fails for what no page may do."""
    node, chromium = str(needs_program("node")), str(needs_program("chromium"))

    def seen(name: str, gateway: str, folder: Path, *more: str) -> dict[str, Any]:
        command = [node, f"{name}.mjs", gateway, str(folder), endpoint, *more]
        ran = subprocess.run(command, cwd=scripts, capture_output=True, text=True, check=False, timeout=380)
        assert ran.returncode == 0, ran.stderr[-4000:]
        found: dict[str, Any] = json.loads(ran.stdout)
        assert "failed" not in found, found["failed"]
        assert found["foreign"] == []
        assert found["errors"] == []
        assert found["violations"] == []
        return found

    with subprocess.Popen([node, "browser.mjs", chromium], cwd=scripts, stdin=PIPE, stdout=PIPE, text=True) as browser:
        assert browser.stdout is not None
        try:
            endpoint = browser.stdout.readline().strip()
            yield seen
            browser.communicate(timeout=30)
        finally:
            browser.kill()  # Else the end of `with` waits for one that hangs.


def test_one_path_through_it(seen: Seen, gateway: str, tmp_path: Path) -> None:
    """Asked, watched, stopped, decided after a reload in a second tab; all places; axe finds nothing."""
    found = seen("walk", gateway, tmp_path)
    assert found["answer"].startswith("East grew most")
    assert '"region": "East"' in found["result"]
    assert "All is well indeed" in found["approved"]
    assert all(text in found["decided"] for text in ("send_report", '"All is well"', '"All is well indeed"')), found[
        "decided"
    ]
    assert "East grew most" in found["reported"]
    assert "Which region grew most" in found["prompt"]
    assert found["rows"] == 2
    assert "How large" in found["listed"]
    assert found["wrong"] == []


def test_what_waits_and_what_is_inside(seen: Seen, gateway: str, tmp_path: Path) -> None:
    """The list of approvals in a second tab, the records and prompts of a run, tools, agents, a plan, links."""
    found = seen("inside", gateway, tmp_path)
    assert "The whole plan, 2 calls" in found["waiting"]
    assert "analyze_table" in found["waiting"]
    assert "6 days" in found["waiting"]
    assert found["receipt"].startswith("Approved: send_report")
    assert found["left"] == 1, "a double click decides one call"
    assert 0 <= found["bar"]["y"] < 800, "on a phone what waits is said while its card is read"
    assert found["untouched"] == 0
    assert found["wrongValue"] == 'values is JSON, such as {"name": "value"}.'
    assert f"emit.default.{found['run']}.log" in found["facts"]
    assert f"/v1/runs/{found['run']}/events" in found["curl"]
    assert found["vector"]["then"]["status"] == "done"
    assert [each["event"]["type"] for each in found["vector"]["events"]][-1] == "done"
    assert "Analyze sales.csv" in found["prompt"]
    assert "The run, with its triage and critique" in found["cost"]
    assert '"input_schema"' in found["specification"]
    assert found["findings"].startswith("Nothing would run. 1 error")
    assert found["wrong"] == []


def test_signing_in(seen: Seen, tmp_path: Path) -> None:
    """By a cookie that no script reads; no other page acts by it or frames this one; a reading key gets no buttons."""
    with running_up(tmp_path, RUNWIRE_API_KEYS=f"{LINE}, {READERS_LINE}"):
        found = seen("signin", remembered(tmp_path)["url"], tmp_path, KEY, READER)
    assert found["refused"] == "This key does not exist or was revoked."
    cookie = found["cookie"]
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == (COOKIE, True, "Strict")
    assert not any(secret in found["kept"] for secret in (KEY, cookie["value"]))
    assert ("Runwire" in found["framed"], found["posted"]) == (False, 403)
    assert not [answer for answer in found["asked"] if " 2" in answer]
    assert found["before"] == found["after"]
    assert found["left"] == 0
    assert not {"Approve", "Reject", "Ask"} & {*found["offered"]}
    assert found["wrong"] == []


def test_a_table_by_proposals(seen: Seen, gateway: str, tmp_path: Path) -> None:
    """Previewed, chosen row by row in the table, applied with the real counts; nothing else is asked meanwhile."""
    found = seen("proposals", gateway, tmp_path)
    assert found["isLocked"]
    assert "new: select, 4 options" in found["preview"]
    assert "Interview" in found["preview"]
    kinds, texts = zip(*found["rows"], strict=True)
    assert kinds == ("add", "add", "off", "upd", "del")
    assert texts[2] == "Change Cannot be applied: there is no row 77 in University Applications"
    assert "Applied Offer" in texts[3]
    assert found["cards"] == [{"isInside": True, "named": True, "isList": True}] * len(texts)
    assert (found["was"], found["chips"]) == ("Was: Applied", 0)
    assert [text.split()[1] for text in found["applied"]] == ["Company", "Company"]
    assert [("Offer" in text, "Interview" in text) for text in found["applied"]] == [(True, False), (False, False)]
    assert found["columns"] == 4
    closed = [" ".join(text.split()) for text in found["closed"]]
    assert closed[1].count("left out") == 2
    assert "Add Salary" in closed[2]
    assert found["wrong"] == []


def test_what_people_give(seen: Seen, gateway: str, tmp_path: Path) -> None:
    """Images with a question and an answer, the page of a conversation; tables, a PDF, and a page that is too old."""
    found = seen("given", gateway, tmp_path)
    assert len(found["percents"]) > 1
    assert found["percents"] == sorted(found["percents"])
    assert (found["picked"], found["kept"], found["isAsked"]) == (3, 2, False)
    assert "green" in found["answered"]
    assert found["sorted"] == [["0.5", "0.25", "0.75"], ["0.25", "0.5", "0.75"], ["0.75", "0.5", "0.25"]]
    assert (found["place"]["name"], found["place"]["tab"]) == ("orders", "late")
    assert found["wrong"] == []


def test_a_long_answer_is_drawn_once_a_frame(seen: Seen, gateway: str, tmp_path: Path) -> None:
    """And each of its blocks stands in the page once, as it does after a reload; a frame draws the last two again.

    No half of an address is ever a link.
    """
    found = seen("long", gateway, tmp_path)
    written = found["written"]
    assert written["most"] <= 2
    assert written["draws"] < found["events"]
    assert written["added"] <= 2 * 1200 + 2 * 3 * written["draws"], written  # Twice: at the end `all` is known.
    assert found["live"] == found["again"], found
    assert (found["live"]["blocks"], found["live"]["nodes"]) == (401, 1202)
    assert written["links"] == ["https://example.org/all", REST]


def test_the_rest_of_it(seen: Seen, gateway: str, tmp_path: Path) -> None:
    """Gallery, replay, search, schedules, what a finished turn offers, and the table of the first minute."""
    found = seen("more", gateway, tmp_path)
    assert {text.split("\n")[-1] for text in found["tiles"]} == {"Images", "Charts, analyze_table"}
    assert '"revenue by region"' in found["raw"]
    assert found["middle"] == {"at": "5", "answers": 0}
    pace = found["pace"]  # At five times the speed, half of it takes a tenth of what it took.
    assert pace["half"] == pytest.approx([pace["stored"] / 2, pace["stored"]], rel=0.15, abs=0.1), pace
    assert (pace["isOver"], pace["whole"][0]) == (0, pytest.approx(pace["whole"][1], abs=0.15))
    assert found["times"].count("02:30") == 3
    assert (found["marked"], found["cited"]) == ("How large", "1 Sales of 2024")
    assert found["unknown"] == "Unknown client action: fly"
    assert {name: found["place"][name] for name in ("name", "tab", "subtab")} == {
        "name": "orders",
        "tab": "late",
        "subtab": "weeks",
    }
    shown = ("East grew most 1, and [1] is code; [9] is nothing.", "Only a part was read.", "Notes", "print(1)", "0.50")
    assert all(text in found["turn"] for text in (*shown, str(LARGE), "Open the PDF", "partial", "Sales of 2024"))
    assert found["wrong"] == []


def test_the_sample_of_the_client_sees_each_event_once(
    seen: Seen, gateway: str, checkout: Path, tmp_path: Path
) -> None:
    """Although it loses its connection in the middle of the run; and it asks once for a run that is not there."""
    (sample,) = re.findall(r"```ts\n(.*?)```", (ROOT / "docs" / "playground.md").read_text("utf-8"), re.DOTALL)
    assert sample.count("\n") <= 10
    sample = sample.replace('"http://127.0.0.1:8080"', "location.origin").replace("the sales of the year", "sales.csv")
    found = seen("resume", gateway, tmp_path, str(checkout / "sdk" / "typescript"), sample)
    assert (found["same"], found["lost"], found["refused"]) == (True, 2, 404), found
    assert (found["types"][0], found["types"][-1]) == ("run_started", "done")
    assert found["asked"].count(f"/v1/runs/{'0' * 32}/events") == 1


NAMES = re.compile(
    "a|b|blockquote|br|button|code|del|details|div|em|h[1-6]|hr|i|kbd|li|ol|p|pre|s|strong|su[bp]|summary|table"
    "|tbody|t[dhr]|thead|ul"
)
GIVEN = re.compile("(?!on|style$|id$|name$)[a-z-]+")
"""Elements and attributes that an answer may become."""


def test_what_a_model_writes_stays_text(seen: Seen, gateway: str, tmp_path: Path) -> None:
    """Nothing of it runs, loads, navigates or names, of an answer or an artifact; what a person may read is there."""
    found = seen("hostile", gateway, tmp_path)
    assert found["after"] == {"canary": "alive", "prototype": 0, "polluted": None}
    for case, shown in zip(CASES, found["shown"], strict=True):
        assert all(map(NAMES.fullmatch, shown["names"])), case
        assert all(map(GIVEN.fullmatch, shown["given"])), case
        assert all(link.startswith(("https://", "http://", "mailto:")) for link in shown["links"]), case
        real = "payload" not in case
        assert (len(shown["texts"]), shown["files"] >= 3) == (1 + real, real), (case, shown)
        assert all(case.get("shown", "") in text for text in shown["texts"]), (case, shown)


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the page is built from, with what that needs; and the client, built."""
    folder = built_typescript(tmp_path_factory)
    build([str(needs_program("npm")), *INSTALL], folder / "web")
    return folder


def test_what_ships_is_what_was_built(checkout: Path) -> None:
    """`make playground` was run after the last change, and the first view stays small."""
    build([str(needs_program("npm")), "run", "build"], checkout / "web")
    built, shipped = (root / "services" / "gateway" / "playground" for root in (checkout, ROOT))
    files = {path.relative_to(built) for path in built.rglob("*") if path.is_file()}
    assert files == {path.relative_to(shipped) for path in shipped.rglob("*") if path.is_file()}, "call make playground"
    assert not [name for name in files if (built / name).read_bytes() != (shipped / name).read_bytes()]


def test_the_client_is_typed_by_the_contracts(checkout: Path) -> None:
    """`npm run types` was run after the last change of the schemas; and the client's own tests."""
    sdk = checkout / "sdk" / "typescript"
    before = (sdk / "src" / "contracts.ts").read_text(encoding="utf-8")
    build([str(needs_program("npm")), "run", "types"], sdk)
    assert (sdk / "src" / "contracts.ts").read_text(encoding="utf-8") == before, "call make playground"
    build([str(needs_program("node")), "--test", *map(str, sorted(sdk.glob("dist/test/*.test.js")))], sdk)
    build([str(needs_program("npm")), "run", "check"], checkout / "web")
