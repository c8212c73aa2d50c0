"""PenguiFlow's side of `benchmarks.beside_penguiflow`. The Python of its own environment runs it; we never import it.

Answers jobs, one JSON object a line: `{"job": "normalise" | "extract" | "steps", …}`. Times are seconds of this
process's CPU.
"""

import asyncio
import importlib
import importlib.metadata
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import BaseModel

llm = importlib.import_module("penguiflow.planner.llm")
migration = importlib.import_module("penguiflow.planner.migration")
streaming = importlib.import_module("penguiflow.planner.streaming")


def normalise(text: str, times: int) -> dict[str, Any]:
    """Seconds per reply, by the way that a reply takes through its planner; and what came out."""
    outcome = "refused"
    began = time.process_time()
    for _ in range(times):
        raw, _cost = llm._coerce_llm_response(text)  # noqa: SLF001, no public name leads there
        try:
            action, _debug = migration.normalize_action_with_debug(raw)
            outcome = action.next_node
        except ValueError:
            outcome = "refused"
    return {"seconds": (time.process_time() - began) / times, "outcome": outcome}


def extract(text: str, size: int, times: int, *, as_run: bool) -> dict[str, Any]:
    """Seconds per reply in chunks of `size`; `as_run`: each is also searched for a thought, as its planner does."""
    shown = 0
    began = time.process_time()
    for _ in range(times):
        # See normalise.
        answer, thought = streaming._StreamingArgsExtractor(), streaming._StreamingThoughtExtractor()  # noqa: SLF001
        shown = 0
        for start in range(0, len(text), size):
            chunk = text[start : start + size]
            if as_run:
                thought.feed(chunk)
            shown += len("".join(answer.feed(chunk)))
    return {"seconds": (time.process_time() - began) / times, "shown": shown}


class At(BaseModel):
    """Arguments and result of the tool."""

    at: int


async def instant(args: At, _context: Any) -> At:
    """Give back what came in."""
    return At(at=args.at)


class Scripted:
    """A model that answers at once: so many calls, then an answer. `moments` holds the CPU used when it was asked."""

    def __init__(self, calls: int) -> None:
        self.calls = calls
        self.moments: list[float] = []

    async def complete(self, *, messages: Sequence[Any], **_: Any) -> str:
        """The reply of this turn."""
        self.moments.append(time.process_time())
        if len(self.moments) <= self.calls:
            return json.dumps({"next_node": "instant", "args": {"at": len(messages)}})
        return json.dumps({"next_node": "final_response", "args": {"answer": "done"}})


def steps(count: int) -> dict[str, Any]:
    """Seconds of each step of one run: from a question to the model to the next one."""
    catalog, node = importlib.import_module("penguiflow.catalog"), importlib.import_module("penguiflow.node")
    registry = importlib.import_module("penguiflow.registry").ModelRegistry()
    registry.register("instant", At, At)
    tool = catalog.tool(desc="Return at once; may be repeated.", side_effects="read")(instant)
    model = Scripted(count)
    planner = importlib.import_module("penguiflow.planner").ReactPlanner(
        llm_client=model,
        catalog=catalog.build_catalog([node.Node(tool, name="instant")], registry),
        max_iters=count + 10,
    )
    finish = asyncio.run(planner.run("a question"))
    if finish.reason != "answer_complete":
        raise RuntimeError(f"the run ended with {finish.reason}")
    return {"seconds": [after - before for before, after in zip(model.moments, model.moments[1:], strict=False)]}


JOBS: dict[str, Callable[..., dict[str, Any]]] = {"normalise": normalise, "extract": extract, "steps": steps}

if __name__ == "__main__":
    print(json.dumps({"version": importlib.metadata.version("penguiflow")}), flush=True)
    for line in sys.stdin:
        given = json.loads(line)
        print(json.dumps(JOBS[given.pop("job")](**given)), flush=True)
