"""The agent as Agno wants it. Started by the Python of Agno's own environment; we never import it."""

import asyncio
import importlib
import os

agent = importlib.import_module("agno.agent")
like = importlib.import_module("agno.models.openai.like")
server = importlib.import_module("agno.os")
sqlite = importlib.import_module("agno.db.sqlite")


async def echo(key: str, number: int, pause_ms: int) -> str:  # noqa: ARG001
    """Return the number of the call, after a pause."""
    if pause_ms:
        await asyncio.sleep(pause_ms / 1000)
    return str(number)


db = sqlite.SqliteDb(db_file=f"{os.environ['PEER_FOLDER']}/runs.db")
model = like.OpenAILike(id="scripted", base_url=os.environ["PEER_MODEL_URL"], api_key="none")
scripted = agent.Agent(id="scripted", name="scripted", model=model, tools=[echo], db=db, telemetry=False)
app = server.AgentOS(agents=[scripted], db=db, telemetry=False).get_app()
