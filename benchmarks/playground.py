"""(o) The playground in Chromium: frames while the longest answer, 600 kB in 10,000 events, comes, beside an idle page.

Run: python -m benchmarks.playground [--rounds 3] [--events 10000] [--characters 58]

The gateway, the planner and NATS are those of `runwire up`, the model replies by a script, and the page is the built
one. Needs Node.js with npm, and Chromium.
"""

import argparse
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.ratio_tables import Table, spread
from runwire.local.launch import remembered
from tests.support.model_server import ModelServer, Say, answer
from tests.support.needs import find_program, needs_program
from tests.support.up import ROOT, running_up

PAUSE_S = 0.002
"""Between two pieces: the planner writes each as an event of its own, unless NATS is slower than that."""
_AGENTS = {"default": {}, "scripted": {"model": "openai/scripted"}}
_BROWSER = ROOT / "tests" / "browser"


_SENTENCE = "**Sales** of region {0} grew in most weeks of the year, as [its report](https://example.org/{0}) says. "
_SECTION = f"""## Region {{0}}

{_SENTENCE * 6}

- the best week was the `{{0}}`th
- the worst was the one before

```
region = {{0}}
```

| week | sales |
| --- | --- |
| {{0}} | {{0}}.5 |

"""


def text_of(characters: int) -> str:
    """Return sections of all that Markdown is used for, no two alike, of which so much is shown."""
    return "".join(_SECTION.format(number) for number in range(characters // 560))


def measured(rounds: int, events: int, characters: int) -> Iterator[dict[str, Any]]:
    """Yield what the page has seen in each round: `{idle, written, read, events, again}`."""
    with TemporaryDirectory() as name, ModelServer() as model:
        data, scripts = Path(name) / "data", Path(name) / "browser"
        data.mkdir()
        (data / "agents.json").write_text(json.dumps(_AGENTS), encoding="utf-8")
        shutil.copytree(_BROWSER, scripts, ignore=shutil.ignore_patterns("node_modules"))
        subprocess.run(
            [needs_program("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=scripts, check=True
        )
        reply = answer(text_of(events * characters))
        piece = len(reply.text) // events
        model.by_turn(Say(text=reply.text, piece=piece, pause_s=PAUSE_S), marker="Write it all down")
        env = {"RUNWIRE_MODEL_API_BASE": model.url, "RUNWIRE_MODEL_API_KEY": "none"}
        with running_up(data, "--no-tools", RUNWIRE_AGENTS_FILE=str(data / "agents.json"), **env):
            command = [needs_program("node"), "long.mjs", remembered(data)["url"], data, needs_program("chromium")]
            for _ in range(rounds):
                ran = subprocess.run(command, cwd=scripts / "playground", capture_output=True, text=True, check=True)
                found: dict[str, Any] = json.loads(ran.stdout)
                if "failed" in found:
                    raise RuntimeError(found["failed"])
                yield found


def missing() -> list[str]:
    """The programs of (o) that this machine lacks."""
    return [name for name in ("node", "npm", "chromium") if find_program(name) is None]


def frames(rounds: int, events: int, characters: int = 58) -> Table:
    """Answer (o): while so many events come, and of each so many characters are shown."""
    found = list(measured(rounds, events, characters))
    most = max(each["written"]["most"] for each in found)
    table = Table(
        "(o) ms between two frames of the playground",
        ("while", "p50", "p95", "longest", "p95 beside idle"),
        f"{found[0]['events']:,} events, {found[0]['again']['length'] / 1e6:.1f} MB shown as "
        f"{found[0]['again']['nodes']:,} elements, drawn at most {most} times a frame.",
    )
    for name, case in (("idle", "idle"), ("the answer is written", "written"), ("it is read from the log", "read")):
        shown = [spread([each[case][quantile] for each in found], 1) for quantile in ("p50", "p95", "longest")]
        table.add(name, *shown, spread([each[case]["p95"] / each["idle"]["p95"] for each in found], 1))
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="Frames of the playground")
    for option, default in (("--rounds", 3), ("--events", 10_000), ("--characters", 58)):
        parser.add_argument(option, type=int, default=default)
    given = parser.parse_args()
    print(frames(given.rounds, given.events, given.characters).text())


if __name__ == "__main__":
    main()
