"""Record the golden journals: `python -m tests.planner.golden [NAME ...]` writes `journals/NAME.json`, or all.

Only a change of what a planner does, or of what the log means, is a reason to record; a change of wording is taken over
by `UPDATE_SNAPSHOTS=1 pytest tests/planner/golden`, which writes the messages alone.
"""

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from contracts.artifacts import ImageRef
from contracts.tools.messages import ToolSpec
from contracts.wire import subjects
from tests.planner.conftest import TOOLS
from tests.planner.shown_images import png
from tests.planner.test_runs_styles import ALL
from tests.support.buses import connected, provisioned
from tests.support.model_server import ModelServer
from tests.support.nats_server import NatsServer
from tests.support.run_services import Handler, Planning, planning, tools_at_work
from tests.support.s3_servers import S3Server
from tests.support.stores import Store, serving
from tests.support.waiting import wait_until

from .journals import FOLDER
from .recorder import journal, listening
from .scenarios import SCENARIOS, Scenario


async def record(name: str, nats: NatsServer, provider: ModelServer, store: Store, folder: Path) -> dict[str, Any]:
    """Play a scenario with a real planner and return its journal."""
    scenario = SCENARIOS[name]
    tools: dict[str, tuple[ToolSpec, Handler]] = (
        ALL if "merge" in json.dumps([reply.text for reply in scenario.replies]) else TOOLS
    )
    if "tools" in scenario.ask:
        tools = ALL
    provider.reset()
    provider.say(*scenario.replies)
    ask = {
        **scenario.ask,
        "tools": sorted(tools),
        "images": [await _image(store, shade) for shade in range(scenario.ask.get("images", 0))],
    }
    with listening() as recordings:
        async with _planner(scenario, nats, provider, folder, tools) as planner:
            run = await planner.ask("Is north ahead of south?", **ask)
            if scenario.killed:
                await wait_until(
                    lambda: len(provider.ledger) == len(scenario.replies) - 1, what="the last reply is held back"
                )
            else:
                acting = asyncio.ensure_future(scenario.act(planner, run)) if scenario.act else None
                story = await planner.ended(run)
                if acting is not None:
                    await acting
        if scenario.killed:
            async with _planner(scenario, nats, provider, folder, tools) as planner:
                story = await planner.ended(run)
    end = getattr(story.end, "reason", None) or getattr(story.end, "code", None) or story.end.type
    if scenario.ends not in {end, story.end.type}:
        raise SystemExit(f"{name} ended as {end}, not as {scenario.ends}: {story.end}")
    async with connected(nats.url, "journal") as bus:
        stored = await (await bus.reader(subjects.RUNS)).read(subjects.log("default", run), 1)
    return journal(recordings[run], stored)


async def _image(store: Store, shade: int) -> ImageRef:
    ref = await store.client.put("default", png(shade), namespace="input_image")
    return ImageRef(artifact_id=ref.artifact_id, mime_type="image/png")


@contextlib.asynccontextmanager
async def _planner(
    scenario: Scenario,
    nats: NatsServer,
    provider: ModelServer,
    folder: Path,
    tools: dict[str, tuple[ToolSpec, Handler]],
) -> AsyncIterator[Planning]:
    async with (
        planning(nats.url, provider, folder=folder, **scenario.settings) as planner,
        tools_at_work(planner, nats.url, tools),
    ):
        yield planner


async def main(names: list[str]) -> None:
    """Record these scenarios, one after another, over real servers."""
    with tempfile.TemporaryDirectory() as made, ModelServer() as provider, S3Server("rclone", Path(made) / "s3") as s3:
        folder = Path(made)
        nats = NatsServer(folder / "nats")
        nats.start()
        try:
            async with provisioned(nats.url, "provisioner"):
                pass
            async with serving(s3, nats.url) as store:
                for name in names:
                    found = await record(name, nats, provider, store, folder)
                    (FOLDER / f"{name}.json").write_text(
                        json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
                    )
                    sys.stdout.write(
                        f"{name}: {len(found['records'])} records, {sum(map(len, found['handlings']))} commands\n"
                    )
        finally:
            nats.stop()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or list(SCENARIOS)))
