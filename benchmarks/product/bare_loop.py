"""The floor: an agent loop over HTTP with nothing behind it. No log, no queue, no check; a kill loses every run.

Run: python -m benchmarks.product.bare_loop PORT MODEL_URL. It asks the same model server, calls the same function, and
shows the same events as the gateway, as far as the client needs them. httpx asks the model, as in OpenAI's own client.
"""

import sys
from collections.abc import AsyncIterator

import httpx
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from benchmarks.product.tools import echo

_SYSTEM = 'Reply with one JSON action: {"next_node": "echo" or "final_response", "args": {}}.'
_DATA = "data: {"


class Loop:
    """Answers questions with the model at `model_url`."""

    def __init__(self, model_url: str) -> None:
        self._url = f"{model_url}/chat/completions"
        self._http = httpx.AsyncClient(
            timeout=600, limits=httpx.Limits(max_connections=None, max_keepalive_connections=500)
        )

    async def answer(self, request: Request) -> Response:
        """Start a run and stream its events."""
        question = (await request.json())["query"]
        return StreamingResponse(self._events(question), media_type="text/event-stream")

    async def _events(self, question: str) -> AsyncIterator[bytes]:
        messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": question}]
        while True:
            text = ""
            async for piece in self._pieces(messages):
                text += piece
                yield _frame("chunk", {"type": "chunk", "text": piece})
            action = orjson.loads(text)
            if action["next_node"] == "final_response":
                yield _frame("done", {"type": "done", "raw_answer": action["args"]["answer"]})
                return
            result = await echo(**action["args"])
            messages.append({"role": "assistant", "content": text})
            messages.append({"role": "user", "content": orjson.dumps(result).decode()})
            yield _frame("observed", {"type": "observed", "observation": result})

    async def _pieces(self, messages: list[dict[str, str]]) -> AsyncIterator[str]:
        body = {"model": "scripted", "messages": messages, "stream": True}
        async with self._http.stream("POST", self._url, content=orjson.dumps(body)) as reply:
            async for line in reply.aiter_lines():
                if line.startswith(_DATA):
                    choices = orjson.loads(line[len(_DATA) - 1 :])["choices"]
                    if choices and (piece := choices[0]["delta"].get("content")):
                        yield piece


def _frame(event: str, data: dict[str, object]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event.encode(), orjson.dumps(data))


async def ready(_: Request) -> Response:
    """Say that the loop listens."""
    return Response()


if __name__ == "__main__":
    loop = Loop(sys.argv[2])
    routes = [Route("/v1/runs", loop.answer, methods=["POST"]), Route("/readyz", ready)]
    uvicorn.run(Starlette(routes=routes), port=int(sys.argv[1]), log_level="warning", backlog=1024)
