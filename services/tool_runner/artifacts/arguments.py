"""Resolve references in a call's arguments: a tool gets values, which fit its input schema.

Rule 1: a reference in arguments grants nothing. It is resolved only within the run or session that the artifact belongs
to.
Rule 2: an argument whose schema says `by_reference` stays a reference, once it is known to be the run's: its tool reads
the bytes in ranges, so no limit of a message bounds them.
Rule 3: a reference with a path stands for that part of the artifact. An artifact is read once for all of its parts.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from contracts.artifacts.references import BY_REFERENCE, ArtifactRef
from contracts.tools.messages import CallRequested, ToolSpec
from contracts.wire.limits import MAX_ARTIFACT_BYTES
from runwire.plans.templates import is_index
from services.shared.artifacts.client import ArtifactClient
from services.shared.artifacts.errors import ArtifactFailed, ArtifactNotFound, ArtifactTooLarge
from services.shared.json_schema.checks import InvalidSchema, complaints
from services.shared.redaction.json_values import plain
from services.shared.redaction.placeholders import wire_size
from services.shared.redaction.stored_values import as_reference, from_blob, holds_reference
from services.tool_runner.errors import ArtifactStoreFailed, InvalidArguments, MissingOutputField

from .store_access import StoreAccess

_HEADROOM_BYTES = 64 * 1024
"""Bytes of a request in addition to its arguments."""
_MAX_INLINE_DECODE_BYTES = 256 * 1024
"""Smaller artifacts are decoded without a thread."""
_MAX_FIELD_CHARACTERS = 200

Path = tuple[str, ...]
Parts = Mapping[tuple[str, Path], Any]
"""The values that take the places of references: by id of the artifact and path in it."""


async def resolve(access: StoreAccess, spec: ToolSpec, patience_s: float) -> dict[str, Any]:
    """Return the call's arguments with values in place of references, but for those that the tool reads itself.

    Raises InvalidArguments, MissingOutputField, ArtifactStoreFailed, RunEnded.
    """
    call = access.call
    if not holds_reference(call.args):
        return call.args
    max_bytes = access.bus.nc.max_payload - _HEADROOM_BYTES
    client = access.client(time.monotonic() + patience_s)
    properties = spec.input_schema.get("properties")
    declared = properties if isinstance(properties, Mapping) else {}
    read = {name for name, each in declared.items() if isinstance(each, Mapping) and each.get(BY_REFERENCE) is True}
    kept = {name: value for name, value in call.args.items() if name in read and as_reference(value)}
    given = {name: value for name, value in call.args.items() if name not in kept}
    try:
        for ref in _references(kept):
            await access.unless_ended(_check_owner(client, call, ref.artifact_id))
        parts = await access.unless_ended(_parts(client, call, given, max_bytes))
    except ArtifactTooLarge as error:
        raise InvalidArguments(
            f"the artifacts in the arguments are too large to be passed to a tool: {error.reason}"
        ) from error
    except ArtifactFailed as error:
        raise ArtifactStoreFailed(
            f"an artifact in the arguments of {call.tool} cannot be read: {error.reason}", error
        ) from error
    args: dict[str, Any] = _resolved(given, parts) | kept
    if (size := wire_size(args)) > max_bytes:
        raise InvalidArguments(f"the arguments have {size} bytes, too many for a tool")
    return args


def check_arguments(call: CallRequested, args: dict[str, Any], spec: ToolSpec) -> None:
    """Raise InvalidArguments if the arguments do not fit the input schema.

    Values that come from earlier results are not quoted: the model may not be allowed to read them.
    """
    try:
        found = complaints(args, spec.input_schema, masked=call.resolved or holds_reference(call.args))
    except InvalidSchema as error:
        raise InvalidArguments(f"the input schema of {call.tool} cannot be used: {error}") from error
    except (TypeError, RecursionError) as error:
        raise InvalidArguments(f"the arguments are nested too deep: {error}") from error
    if found:
        raise InvalidArguments(f"the arguments do not fit the inputSchema of {call.tool}: {'; '.join(found)}")


async def _parts(client: ArtifactClient, call: CallRequested, given: Mapping[str, Any], max_bytes: int) -> Parts:
    """Return what the references of arguments stand for. `max_bytes`: of all artifacts that are meant as a whole."""
    paths: defaultdict[str, dict[Path, None]] = defaultdict(dict)
    for ref in _references(given):
        paths[ref.artifact_id][_path_of(ref)] = None
    found: dict[tuple[str, Path], Any] = {}
    left_bytes, left_for_parts = max_bytes, MAX_ARTIFACT_BYTES
    for artifact_id, wanted in paths.items():
        is_whole = () in wanted
        await _check_owner(client, call, artifact_id)
        ref, body = await client.read(call.tenant, artifact_id, limit=left_bytes if is_whole else left_for_parts)
        left_bytes -= len(body) if is_whole else 0
        left_for_parts -= 0 if is_whole else len(body)
        is_small = len(body) <= _MAX_INLINE_DECODE_BYTES
        value = _value(body, ref) if is_small else await asyncio.to_thread(_value, body, ref)
        found |= {(artifact_id, path): _at(value, path, ref) for path in wanted}
    return found


async def _check_owner(client: ArtifactClient, call: CallRequested, artifact_id: str) -> None:
    """Raise InvalidArguments for a foreign artifact, or ArtifactFailed."""
    try:
        stored = await client.head(call.tenant, artifact_id)
        is_tenants = stored.run_id is None and stored.session_id is None
        is_sessions = stored.session_id is not None and stored.session_id == call.session_id
        belongs = is_tenants or stored.run_id == call.run_id or is_sessions
        if belongs and stored.user_id in {None, call.user_id}:
            return
    except ArtifactNotFound:
        pass
    raise InvalidArguments(f"there is no artifact {artifact_id} in this run or session")


def _value(body: bytes, ref: ArtifactRef) -> Any:
    """Return an artifact's value as JSON. Raises InvalidArguments if its bytes are not what its reference says."""
    try:
        value = from_blob(body, ref)
    except (ValueError, RecursionError) as error:
        raise InvalidArguments(f"the artifact {ref.artifact_id} is no {ref.json_type}") from error
    return plain(value) if isinstance(value, bytes) else value


def _at(value: Any, path: Path, ref: ArtifactRef) -> Any:
    """Return the part of an artifact at a path. Raises MissingOutputField. An explicit null is a value."""
    for depth, segment in enumerate(path, 1):
        if isinstance(value, Mapping) and segment in value:
            value = value[segment]
        elif isinstance(value, list) and is_index(segment) and int(segment) < len(value):
            value = value[int(segment)]
        else:
            field = ".".join(path[:depth])
            shown = field if len(field) <= _MAX_FIELD_CHARACTERS else field[:_MAX_FIELD_CHARACTERS] + "…"
            raise MissingOutputField(ref.own_id or ref.artifact_id, shown)
    return value


def _references(value: Any) -> Iterator[ArtifactRef]:
    ref = as_reference(value)
    if ref is not None:
        yield ref
        return
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ():
        yield from _references(item)


def _path_of(ref: ArtifactRef) -> Path:
    return tuple(ref.path or ())


def _resolved(value: Any, parts: Parts) -> Any:
    ref = as_reference(value)
    if ref is not None:
        return parts[ref.artifact_id, _path_of(ref)]
    if isinstance(value, Mapping):
        return {key: _resolved(item, parts) for key, item in value.items()}
    return [_resolved(item, parts) for item in value] if isinstance(value, list) else value
