"""The entries of the KV buckets as descriptions, for `channels`: key, who writes and who reads, and what."""

from pydantic import BaseModel

from ..artifacts import images
from ..runs import requests as runs
from ..sessions import records as sessions
from ..sessions import schedules
from ..tools import messages as tools
from . import keys
from .channel import GATEWAY, PLANNER, STORE, TOOL_RUNNER, Body, Channel


def _model(kind: type[BaseModel], headers: dict[str, str] | None = None) -> Body:
    return Body(kind.__name__, kind, headers=headers or {})


def _entry(
    name: str,
    bucket: str,
    key: str,
    built_by: tuple[str, ...],
    body: Body,
    senders: tuple[str, ...],
    receivers: tuple[str, ...],
) -> Channel:
    """An entry of a bucket."""
    meaning = (
        f"An entry of the bucket `{bucket}`: the newest value counts, and an empty one with KV-Operation removes it."
    )
    return Channel(name, f"$KV.{bucket}.{key}", meaning, built_by, (body,), senders, receivers, f"KV_{bucket}")


def _json(name: str, summary: str) -> Body:
    return Body(name, {"type": "object"}, summary)


_CATALOGUE, _RUNS, _ARTIFACTS = keys.CATALOGUE_BUCKET, keys.RUNS_BUCKET, keys.ARTIFACTS_BUCKET
_LIVES = {"Nats-TTL": "seconds; the entry expires unless it is written again"}
_SPEC, _LIVE_SPEC = _model(tools.ToolSpec), Body("LiveToolSpec", tools.ToolSpec, headers=_LIVES)
_REFUSED, _PROFILE = (
    Body("RefusedTool", tools.RefusedTool, headers=_LIVES),
    Body("ModelProfile", images.ModelProfile, headers=_LIVES),
)
_DELETED_BY = ("deletion_key", "ALL_DELETIONS")
IN_BUCKETS = (
    _entry(
        "live_tool", _CATALOGUE, "tool.{tool}", ("tool_key", "ALL_TOOLS"), _LIVE_SPEC, (TOOL_RUNNER,),
        (PLANNER, GATEWAY),
    ),
    _entry(
        "refused_tool", _CATALOGUE, "refused.{tool}", ("refused_key", "ALL_REFUSED"), _REFUSED, (TOOL_RUNNER,),
        (GATEWAY,),
    ),
    _entry(
        "accepted_specs", _CATALOGUE, "accepted.{tool}", ("accepted_key", "ALL_ACCEPTED"), _model(tools.AcceptedSpecs),
        (TOOL_RUNNER,), (TOOL_RUNNER,),
    ),
    _entry(
        "tool_spec", _CATALOGUE, "spec.{digest}", ("spec_key", "ALL_SPECS"), _SPEC, (TOOL_RUNNER,),
        (PLANNER, TOOL_RUNNER),
    ),
    _entry("model_profile", _CATALOGUE, "model.{model}", ("model_key", "ALL_MODELS"), _PROFILE, (PLANNER,), (GATEWAY,)),
    _entry(
        "run_deletion", _RUNS, "deleted.{tenant}.{run}", _DELETED_BY, _model(runs.RunDeletion),
        (GATEWAY, PLANNER), (PLANNER, GATEWAY),
    ),
    _entry(
        "run_entry", _RUNS, "{tenant}.{entry}", ("run_key", "runs_of"), _model(runs.RunStatus), (PLANNER,),
        (GATEWAY, PLANNER),
    ),
    _entry(
        "session_entry", _RUNS, "session.{tenant}.{session_entry}", ("session_entry_key", "sessions_of"),
        _model(sessions.SessionEntry), (PLANNER,), (GATEWAY, PLANNER),
    ),
    _entry(
        "key_spent", _RUNS, "spent.{tenant}.{api_key}.{day}.{run}", ("spent_key", "spent_on"),
        Body("KeySpent", runs.KeySpent, headers=_LIVES), (PLANNER,), (PLANNER, GATEWAY),
    ),
    _entry(
        "schedule_entry", _RUNS, "schedule.{tenant}.{schedule}", ("schedule_key", "schedules_of", "ALL_SCHEDULES"),
        _model(schedules.Schedule), (GATEWAY, PLANNER), (GATEWAY, PLANNER),
    ),
    _entry(
        "webhook_entry", _RUNS, "webhook.{schedule}.secret", ("webhook_key",), _model(schedules.Webhook),
        (GATEWAY,), (GATEWAY,),
    ),
    _entry(
        "reference", _ARTIFACTS, "ref.{tenant}.{artifact}",
        ("reference_key",), _json("Reference", "Private to the store."), (STORE,), (STORE,),
    ),
    _entry(
        "listing", _ARTIFACTS, "list.{tenant}.{session}.{run_or_none}.{artifact}", ("listing_key", "listings_of"),
        Body("Listing", {"type": "integer"}, "The time of the entry, Unix ms."), (STORE,), (STORE,),
    ),
    _entry(
        "own_id", _ARTIFACTS, "own.{tenant}.{session}.{run_or_none}.{own_id}.{namespace}",
        ("own_id_key", "own_ids_of"), _json("OwnId", "Private to the store."), (STORE,), (STORE,),
    ),
    _entry(
        "bucket_owner", _ARTIFACTS, "owner", ("ARTIFACT_OWNER_KEY",),
        Body("BucketOwner", {"type": "string"}, "The mark that the S3 bucket holds too.", "text/plain"), (STORE,),
        (STORE,),
    ),
)  # fmt: skip
