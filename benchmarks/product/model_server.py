"""A server with OpenAI's streaming protocol that follows the script in the question, as a process of its own.

Run: python -m benchmarks.product.model_server PORT. It answers at once and does as little as it can, since its time
counts in every figure, also in those of the bare loop: it reads HTTP itself, keeps connections, and holds no state.
"""

import asyncio
import sys

import orjson
import uvloop

from benchmarks.product.script import Script, token

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_ANSWER, _END_OF_ANSWER = '{"next_node":"final_response","args":{"answer":"', '"}}'
_PLANNING, _PLANNED = "__planning__", '{"type":"tool_calls"'
_CHUNK = {"id": "chatcmpl-0", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of one connection until the client closes it."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
            request = orjson.loads(await reader.readexactly(int(size)))
            if _asks_plan(request.get("tools")):
                _plan(request["messages"], writer)
            else:
                await _answer(request["messages"], writer, is_native="tools" in request)
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def _asks_plan(tools: list[dict[str, dict[str, object]]] | None) -> bool:
    """Whether the request asks for a plan of all calls."""
    return tools is not None and tools[0]["function"]["name"] == _PLANNING


def _plan(messages: list[dict[str, object]], writer: asyncio.StreamWriter) -> None:
    """Write the plan of a script's calls. Each but the first takes the number of the one before from its result."""
    script, _ = _newest_script(messages, "assistant")
    calls = [
        {"tool_name": script.node, "arguments": {**script.args(number), **_after(number)}}
        for number in range(script.calls)
    ]
    plan = {"type": "tool_calls", "reasoning": "", "calls": calls}
    function = {"name": _PLANNING, "arguments": orjson.dumps(plan).decode()}
    call = {"index": 0, "id": "call_0", "type": "function", "function": function}
    writer.write(_HEAD + _delta({"content": None, "tool_calls": [call]}) + _end("tool_calls"))


def _after(number: int) -> dict[str, str]:
    return {"number": f"${number - 1}.output.number"} if number else {}


def _is_planned(messages: list[dict[str, object]]) -> bool:
    """Whether the request asks for the answer from the results of a plan."""
    return any(each["role"] == "assistant" and str(each.get("content")).startswith(_PLANNED) for each in messages[-2:])


async def _answer(messages: list[dict[str, object]], writer: asyncio.StreamWriter, *, is_native: bool) -> None:
    """Write the next reply of a script: a JSON action, or a native tool call and a plain answer."""
    script, done = _newest_script(messages, "tool" if is_native else "assistant")
    is_planned = _is_planned(messages)
    if done < script.calls and not is_planned:
        args = script.args(done)
        if is_native:
            function = {"name": script.node, "arguments": orjson.dumps(args).decode()}
            call = {"index": 0, "id": f"call_{done}", "type": "function", "function": function}
            writer.write(_HEAD + _delta({"content": None, "tool_calls": [call]}) + _end("tool_calls"))
        else:
            text = orjson.dumps({"next_node": script.node, "args": args}).decode()
            writer.write(_HEAD + _delta({"content": text}) + _end())
        return
    before, after = ("", "") if is_native or is_planned else (_ANSWER, _END_OF_ANSWER)
    writer.write(_HEAD + _delta({"content": before}))
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(script.tokens):
        if number and script.gap_ms:
            await asyncio.sleep(max(0.0, began + number * script.gap_ms / 1000 - loop.time()))
        writer.write(_delta({"content": token()}))
        await writer.drain()
    writer.write(_delta({"content": after}) + _end())


def _newest_script(messages: list[dict[str, object]], role: str) -> tuple[Script, int]:
    """Return the script of the newest question that has one, and how many messages of this role follow it."""
    done = 0
    for message in reversed(messages):
        if message["role"] == role:
            done += 1
        elif message["role"] == "user":
            _, mark, question = str(message.get("content")).rpartition("<question>")
            if (script := Script.of(question)) is not None:
                return script, done
            if mark:
                return Script(), done  # Of a report: nobody scripts it.
    raise ValueError("no question holds a script")


def _delta(delta: dict[str, object]) -> bytes:
    return _event({**_CHUNK, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


def _end(reason: str = "stop") -> bytes:
    stop = _event({**_CHUNK, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    return stop + _event({**_CHUNK, "choices": [], "usage": _USAGE}) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def _event(body: dict[str, object]) -> bytes:
    return _chunk(b"data: " + orjson.dumps(body) + b"\n\n")


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def main(port: int) -> None:
    """Serve until the process is ended."""
    server = await asyncio.start_server(serve, "127.0.0.1", port, limit=16 << 20, backlog=1024)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main(int(sys.argv[1])))
