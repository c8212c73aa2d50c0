"""One small system for the whole tutorial: every service, a second gateway with API keys, tools, and two models.

The demo model answers by rules. The agents `scripted` and `native` call a server with scripted replies.
"""

import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from contracts.wire.names import new_id
from runwire import Client
from runwire.client import RunStatus
from services.gateway.auth.key_lines import new_key
from tests.support.model_server import ModelServer
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.stack import ROOT, Stack
from tests.support.waiting import wait_until

TOOLS = Path(__file__).parent / "tutorial_tools.py"
DEMO_TOOLS = ROOT / "examples" / "demo"
KEYED_GATEWAY = "gateway-2"
#: The API key of each tenant, and the lines that the gateway is given.
(ACME_KEY, _ACME), (GLOBEX_KEY, _GLOBEX) = new_key("acme"), new_key("globex")
#: Keys of `acme` that may do less. Their lines stand in a file, which the gateway follows.
ASKING_KEY, _ASKING = new_key("acme", {"rights": "run"})
ANN_KEY, _ANN = new_key("acme", {"user": "ann", "name": "ann"})
BOB_KEY, _BOB = new_key("acme", {"user": "bob", "max_runs": "1"})
THRIFTY_KEY, _THRIFTY = new_key("acme", {"max_tokens_per_day": "1000"})
KEY_FILE = "keys"
OFFERED = {"take_nap", "post_postcard", "count_inhabitants", "add_up_inhabitants", "fetch_minutes"}
OFFERED |= {"calculate", "analyze_table", "book_seat", "pay", "research_blog", "create_blog_post"}
AGENTS = {
    "scripted": {"model": "openai/scripted"},
    "native": {"model": "openai/scripted", "action_transport": "tools"},
    "planning": {"model": "openai/scripted", "strategy": "planned"},
    "asking": {"model": "openai/scripted", "followup": "pause"},
    "trusting": {
        "model": "openai/scripted",
        "approvals": [{"name": "payments", "tools": ["pay"], "ask": "once_per_session"}],
    },
    "impatient": {
        "model": "openai/scripted",
        "approvals": [{"name": "payments", "tools": ["pay"], "expires_in_s": 0.5}],
    },
    "spawning": {"model": "openai/scripted", "tasks": {"spawn_requires_confirmation": False}},
    "hesitant": {"model": "openai/scripted", "tasks": {}},
    "greedy": {
        "model": "openai/scripted",
        "tasks": {"spawn_requires_confirmation": False, "max_per_run": 2, "group_report": "none"},
        "limits": {"max_steps": 4},
    },
}


@pytest.fixture(scope="session")
def model_server() -> Iterator[ModelServer]:
    """The provider of the scripted model."""
    with ModelServer() as server:
        yield server


@pytest.fixture(scope="session")
def tutorial_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """Where all processes of the tutorial connect, each as its own user."""
    with NatsServer(tmp_path_factory.mktemp("tutorial-nats"), identities=True) as server:
        yield server
    assert server.violations() == []


@pytest.fixture(scope="session")
def stack(
    tmp_path_factory: pytest.TempPathFactory, tutorial_nats: NatsServer, model_server: ModelServer
) -> Iterator[Stack]:
    """Everything running, as `runwire up` starts it."""
    folder = tmp_path_factory.mktemp("tutorial")
    agents = folder / "agents.json"
    agents.write_text(json.dumps(AGENTS), encoding="utf-8")
    with S3Server("rclone", folder / "s3") as s3:
        env = {
            "RUNWIRE_MODEL": "builtin/rehearsal",
            "RUNWIRE_MODEL_API_BASE": model_server.url,
            "RUNWIRE_MODEL_API_KEY": "none",
            "RUNWIRE_MODEL_VISION": '{"openai/scripted": true}',
            "RUNWIRE_AGENTS_FILE": str(agents),
            "RUNWIRE_DISCOVER_S": "0.5",
            "TUTORIAL_FOLDER": str(folder),
            "BLOG_FOLDER": str(folder / "blogs"),
            **s3.settings,
        }
        system = Stack(
            tutorial_nats.url, folder, env, 1, 1, 2, 1, TOOLS, tool_copies=1, passwords=tutorial_nats.passwords
        )
        keys = folder / KEY_FILE
        keys.write_text(f"{_ASKING}\n{_ANN}\n{_BOB}\n{_THRIFTY}\n", encoding="utf-8")
        system.parts[KEYED_GATEWAY].env |= {
            "RUNWIRE_API_KEYS": f"{_ACME},{_GLOBEX}",
            "RUNWIRE_API_KEYS_FILE": str(keys),
        }
        system.add_tools("calculator-1", DEMO_TOOLS / "calculator.py")
        system.add_tools("table-1", DEMO_TOOLS / "table.py")
        system.add_tools("blog-1", ROOT / "examples" / "plans" / "blog_tools.py")
        with system:
            yield system


@pytest.fixture
async def client(stack: Stack) -> AsyncIterator[Client]:
    """Speaks to the gateway, as the tenant `default`. Every process that a test has ended runs again afterwards."""
    with stack.showing_logs():
        async with Client(stack.url) as client:
            await wait_until(partial(_are_offered, client), timeout=30, what="the tools are in the catalogue")
            yield client
        stack.mend()


@pytest.fixture
async def http(stack: Stack, client: Client) -> AsyncIterator[httpx.AsyncClient]:
    """The same gateway as plain HTTP, for what is easier to see without the client."""
    assert client is not None
    async with httpx.AsyncClient(base_url=stack.url, timeout=30) as http:
        yield http


@pytest.fixture
def model(model_server: ModelServer) -> Iterator[ModelServer]:
    """The scripted model, with nothing to say yet: `model.say(...)` gives it its replies in order."""
    model_server.reset()
    yield model_server
    model_server.reset()


@pytest.fixture
def session() -> str:
    """The id of a conversation that has not begun."""
    return new_id()


async def _are_offered(client: Client) -> bool:
    return {tool.name for tool in await client.tools()} >= OFFERED


def answer_in(run: RunStatus) -> str:
    """The answer of a run that has ended."""
    assert run.payload is not None, run
    return run.payload.raw_answer


def restart(stack: Stack, *names: str) -> None:
    """Kill processes, and start each again."""
    for name in names:
        stack.kill(name)
        stack.spawn(name)


def noted(stack: Stack, book: str, run_id: str) -> list[str]:
    """What the tools of a run have done, by the lines that they have written into a file: a key, and what it was."""
    file = stack.folder / book
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [line for line in lines if line.startswith(run_id)]


async def until(client: Client, run_id: str, kind: str) -> None:
    """Follow a run until an event of this type comes."""
    async for event in client.follow(run_id):
        if event.type == kind:
            return
