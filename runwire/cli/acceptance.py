"""Commands on specifications of tools: what an operator reads and writes in the catalogue, over NATS.

Each returns what it prints. It raises InvalidName, ToolsNotLoaded, and OperatorRefused with what to do instead.
"""

import asyncio
import contextlib
import json
import tomllib
from difflib import unified_diff
from pathlib import Path
from typing import Annotated, TypeVar

import orjson
import typer
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue
from pydantic import BaseModel, ValidationError

from contracts.tools.messages import MAX_ACCEPTED_SPECS, SPEC_METADATA, AcceptedSpecs, RefusedTool, ToolSpec
from contracts.wire import keys, subjects
from contracts.wire.faults import describe
from contracts.wire.names import new_id
from runwire.cli.operator import OperatorRefused, connected_operator, replies
from runwire.errors import ToolsNotLoaded
from runwire.nats_client import NatsClient
from runwire.serving.server import load_tools

_ATTEMPTS = 3
_TAKEN_S, _POLL_S = 10.0, 0.1
"""Until a tool runner has taken a declaration; how often that is looked at."""
Digest = Annotated[str | None, typer.Argument(help="24 hexadecimal digits. Default: the one that waits.")]
M = TypeVar("M", bound=BaseModel)


async def accept(name: str, digest: Digest = None) -> str:
    """Accept a specification of a tool that changed. It may come before its rollout; what was accepted stays so."""
    key = keys.accepted_specs(name)
    if digest is not None:
        keys.tool_spec(digest)
    async with connected_operator() as client:
        catalogue = await client.jetstream().key_value(keys.CATALOGUE_BUCKET)
        for _ in range(_ATTEMPTS):
            known, revision = await _read(catalogue, key, AcceptedSpecs)
            accepted = known.digests if known else []
            chosen = digest or await _waiting(catalogue, name, accepted)
            if chosen in accepted:
                return f"{name}: {chosen} is accepted already"
            new = AcceptedSpecs(digests=[*accepted, chosen][-MAX_ACCEPTED_SPECS:])
            try:
                await catalogue.update(key, new.model_dump_json().encode(), last=revision)
            except KeyWrongLastSequenceError:
                continue
            return f"{name}: {chosen} is accepted; before it: {', '.join(accepted) or 'none'}"
    raise OperatorRefused(f"others change what is accepted of {name} at the same time; try again")


async def forget(name: str) -> str:
    """Forget what is declared and accepted of a tool: its next specification is accepted as the first one."""
    forgotten = []
    async with connected_operator() as client:
        catalogue = await client.jetstream().key_value(keys.CATALOGUE_BUCKET)
        for key in (keys.declared_tool(name), keys.accepted_specs(name)):
            with contextlib.suppress(KeyNotFoundError):
                await catalogue.get(key)
                forgotten.append(key)
                await catalogue.delete(key)
    if not forgotten:
        raise OperatorRefused(f"nothing is accepted or declared of a tool {name}")
    return f"{name}: the next specification that is seen is accepted"


async def declare(file: Annotated[Path, typer.Argument(help="JSON or TOML, as in docs/tools.md.")]) -> str:
    """Offer the tools of a file, which speak plain NATS and announce nothing, until `forget`. Nothing is restarted."""
    specs = read_specs(file)
    async with connected_operator() as client:
        catalogue = await client.jetstream().key_value(keys.CATALOGUE_BUCKET)
        for spec in specs:
            await catalogue.put(keys.declared_tool(spec.name), spec.model_dump_json().encode())
        for spec in specs:
            for _ in range(round(_TAKEN_S / _POLL_S)):
                if (await _read(catalogue, keys.live_tool(spec.name), ToolSpec))[0] == spec:
                    break
                refused, _ = await _read(catalogue, keys.refused_tool(spec.name), RefusedTool)
                if refused is not None and not refused.digests:
                    raise OperatorRefused(f"{spec.name} is refused: {refused.reason}")
                await asyncio.sleep(_POLL_S)
            else:
                raise OperatorRefused(
                    f"{spec.name} is declared, and after {_TAKEN_S:g} s it is not offered: another process serves a "
                    "tool of this name, or no tool runner works"
                )
    return f"{', '.join(spec.name for spec in specs)}: offered, whether served or not, until `runwire tools forget`"


async def diff(name: str, digest: Digest = None) -> str:
    """Show how a specification that a tool announces differs from the accepted one."""
    key = keys.accepted_specs(name)
    async with connected_operator() as client:
        catalogue = await client.jetstream().key_value(keys.CATALOGUE_BUCKET)
        known, _ = await _read(catalogue, key, AcceptedSpecs)
        accepted = known.digests if known else []
        chosen = digest or await _waiting(catalogue, name, accepted)
        announced = await _announced(client, name)
        if chosen not in announced:
            raise OperatorRefused(f"no instance of {name} announces {chosen} now")
        before = None
        for one in reversed(accepted):
            before, _ = await _read(catalogue, keys.tool_spec(one), ToolSpec)
            if before is not None:
                break
    title = f"accepted {before.digest()}" if before else "nothing accepted was served here"
    # Lines of ASCII: a tool's text cannot control a terminal.
    old, new = (spec and json.dumps(spec.model_dump(mode="json"), indent=2) for spec in (before, announced[chosen]))
    old_lines, new_lines = old.split("\n") if old else [], new.split("\n") if new else []
    return "\n".join(unified_diff(old_lines, new_lines, title, f"announced {chosen}", n=2, lineterm=""))


async def _announced(client: NatsClient, name: str) -> dict[str, ToolSpec]:
    """Ask the instances of a tool for their specifications; by digest. Only this tool can answer."""
    found: dict[str, ToolSpec] = {}
    inbox = subjects.answer(name, new_id(), "info")
    async for message in replies(client, subjects.discover_info(name), inbox):
        with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
            for endpoint in orjson.loads(message.data)["endpoints"]:
                spec = _canonical(ToolSpec.model_validate_json(endpoint["metadata"][SPEC_METADATA]))
                found[spec.digest()] = spec
    return found


async def _waiting(catalogue: KeyValue, name: str, accepted: list[str]) -> str:
    """Return the one digest that waits. Raises OperatorRefused."""
    refused, _ = await _read(catalogue, keys.refused_tool(name), RefusedTool)
    waiting = refused.digests if refused else []
    if len(waiting) == 1:
        return waiting[0]
    if waiting:
        raise OperatorRefused(f"several specifications of {name} wait, name one of them: {', '.join(waiting)}")
    if refused:
        raise OperatorRefused(f"{name} is refused for another reason: {refused.reason}")
    if accepted:
        raise OperatorRefused(f"no specification of {name} waits. Accepted are {', '.join(accepted)}")
    raise OperatorRefused(
        f"no tool {name} has announced itself; `runwire tools` lists them. To accept a specification before its "
        f"rollout, give its digest, which `runwire tools digest FILE` prints"
    )


async def _read(catalogue: KeyValue, key: str, kind: type[M]) -> tuple[M | None, int]:
    """Return a value and its revision. None without one, and for one that cannot be parsed."""
    try:
        found = await catalogue.get(key)
    except KeyNotFoundError as error:
        return None, (error.entry.revision or 0) if error.entry else 0
    try:
        return kind.model_validate_json(found.value or b""), found.revision or 0
    except ValidationError:
        return None, found.revision or 0


def read_specs(file: Path) -> list[ToolSpec]:
    """Return the specifications in a file: of the tools in a Python file, or as JSON or TOML, as a tools file has them.

    Raises ToolsNotLoaded.
    """
    if file.suffix not in {".json", ".toml"}:
        try:
            return [_canonical(tool.spec) for tool in load_tools(file)]
        except ToolsNotLoaded:
            raise
        except Exception as error:
            raise ToolsNotLoaded(f"{file} cannot be loaded: {type(error).__name__}: {error}") from error
    try:
        data = file.read_bytes()
        content = tomllib.loads(data.decode()) if file.suffix == ".toml" else orjson.loads(data)
        content = content.get("tools", content) if isinstance(content, dict) else content
        specs = content if isinstance(content, list) else [content]
        return [_canonical(ToolSpec.model_validate(one)) for one in specs]
    except OSError as error:
        raise ToolsNotLoaded(f"{file} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise ToolsNotLoaded(f"{file} is not a specification of a tool: {describe(error, limit=1)}") from error
    except ValueError as error:
        raise ToolsNotLoaded(f"{file} is not {file.suffix[1:].upper()}: {error}") from error


def _canonical(spec: ToolSpec) -> ToolSpec:
    """The form of which the tool runner takes the digest."""
    return ToolSpec.model_validate_json(spec.model_dump_json())
