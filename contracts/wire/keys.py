"""The table of entries: every key of the KV buckets, as rows like those of `subjects`; and the keys of the S3 bucket.

Rule: no other module writes or splits a key. A name that comes from outside is checked (`names`), or refused with
`InvalidName`; any text of a caller or tool is part of a key as its digest.
"""

import hashlib
import re

from .names import Form, InvalidName, checked_id, checked_tenant, new_id, shortened
from .subject import GATEWAY, PLANNER, STORE, TOOL_RUNNER, Subject
from .subjects import bucket_stream

CATALOGUE_BUCKET, RUNS_BUCKET, ARTIFACTS_BUCKET = "catalogue", "runs", "artifacts"
BUCKETS = (CATALOGUE_BUCKET, RUNS_BUCKET, ARTIFACTS_BUCKET)
OWNER_OBJECT_KEY = "runwire/owner"
"""The key, in the S3 bucket, of the random mark that the KV bucket of artifacts holds too (`bucket_owner`)."""

_OBJECT = Form("object name", r"[0-9a-f]{8}-[0-9a-f]{32}")
_NONCE_CHARACTERS = 8


def _entry(
    name: str,
    bucket: str,
    key: str,
    *,
    writes: tuple[str, ...],
    reads: tuple[str, ...],
    carries: str,
    watched_by: tuple[str, ...] = (),
) -> Subject:
    meaning = (
        f"An entry of the bucket `{bucket}`: the newest value counts, and an empty one with KV-Operation removes it."
    )
    return Subject(
        name, key, meaning, writes=writes, reads=reads, carries=(carries,), watched_by=watched_by, bucket=bucket,
        kept_in=bucket_stream(bucket),
    )  # fmt: skip


# fmt: off
live_tool = _entry(  # It expires when the tool is gone.
    "live_tool", CATALOGUE_BUCKET, "tool.{tool}",
    writes=(TOOL_RUNNER,), reads=(PLANNER, GATEWAY), carries="LiveToolSpec",
    watched_by=(GATEWAY, PLANNER, TOOL_RUNNER),
)
refused_tool = _entry(  # It expires when the tool stops announcing itself.
    "refused_tool", CATALOGUE_BUCKET, "refused.{tool}",
    writes=(TOOL_RUNNER,), reads=(GATEWAY,), carries="RefusedTool",
)
accepted_specs = _entry(  # It stays until an operator removes it.
    "accepted_specs", CATALOGUE_BUCKET, "accepted.{tool}",
    writes=(TOOL_RUNNER,), reads=(TOOL_RUNNER,), carries="AcceptedSpecs", watched_by=(TOOL_RUNNER,),
)
declared_tool = _entry(  # Written by `runwire tools declare`; it stays until `runwire tools forget`.
    "declared_tool", CATALOGUE_BUCKET, "declared.{tool}",
    writes=(), reads=(TOOL_RUNNER,), carries="ToolSpec", watched_by=(TOOL_RUNNER,),
)
tool_spec = _entry(  # Runs refer to it, so it stays.
    "tool_spec", CATALOGUE_BUCKET, "spec.{digest}",
    writes=(TOOL_RUNNER,), reads=(PLANNER, TOOL_RUNNER), carries="ToolSpec",
)
model_profile = _entry(
    "model_profile", CATALOGUE_BUCKET, "model.{model}",
    writes=(PLANNER,), reads=(GATEWAY,), carries="ModelProfile",
)
run_deletion = _entry(  # Three tokens, so that it is none of a tenant's runs.
    "run_deletion", RUNS_BUCKET, "deleted.{tenant}.{run}",
    writes=(GATEWAY, PLANNER), reads=(PLANNER, GATEWAY), carries="RunDeletion",
)
run_entry = _entry(  # Keys of a tenant sort by the time of the request.
    "run_entry", RUNS_BUCKET, "{tenant}.{entry}",
    writes=(PLANNER,), reads=(GATEWAY, PLANNER), carries="RunStatus",
)
session_entry = _entry(  # Keys of a tenant sort by the time of creation.
    "session_entry", RUNS_BUCKET, "session.{tenant}.{session_entry}",
    writes=(PLANNER,), reads=(GATEWAY, PLANNER), carries="SessionEntry",
)
key_spent = _entry(
    "key_spent", RUNS_BUCKET, "spent.{tenant}.{api_key}.{day}.{run}",
    writes=(PLANNER,), reads=(PLANNER, GATEWAY), carries="KeySpent", watched_by=(GATEWAY, PLANNER),
)
proposal_entry = _entry(  # Written before the record that proposes it.
    "proposal_entry", RUNS_BUCKET, "proposal.{tenant}.{proposal}.{run}",
    writes=(PLANNER,), reads=(GATEWAY,), carries="ProposalPlace",
)
schedule_entry = _entry(  # Of a schedule or webhook.
    "schedule_entry", RUNS_BUCKET, "schedule.{tenant}.{schedule}",
    writes=(GATEWAY, PLANNER), reads=(GATEWAY, PLANNER), carries="Schedule",
)
webhook_entry = _entry(
    "webhook_entry", RUNS_BUCKET, "webhook.{schedule}.secret",
    writes=(GATEWAY,), reads=(GATEWAY,), carries="Webhook",
)
ticket_secret = _entry(  # It stays, and all gateways sign with it.
    "ticket_secret", RUNS_BUCKET, "ticket.{tenant}.secret",
    writes=(GATEWAY,), reads=(GATEWAY,), carries="TicketSecret",
)
login_entry = _entry(  # It expires with the login.
    "login_entry", RUNS_BUCKET, "login.{login}.key",
    writes=(GATEWAY,), reads=(GATEWAY,), carries="LoginEntry",
)
reference = _entry(
    "reference", ARTIFACTS_BUCKET, "ref.{tenant}.{artifact}",
    writes=(STORE,), reads=(STORE,), carries="Reference",
)
artifact_listing = _entry(  # An artifact in the list of its session and run.
    "listing", ARTIFACTS_BUCKET, "list.{tenant}.{session}.{run_or_none}.{artifact}",
    writes=(STORE,), reads=(STORE,), carries="Listing",
)
own_id = _entry(  # The newest artifact to which a tool, its namespace, has given this id in a session or in a run.
    "own_id", ARTIFACTS_BUCKET, "own.{tenant}.{session}.{run_or_none}.{own_id}.{namespace}",
    writes=(STORE,), reads=(STORE,), carries="OwnId",
)
bucket_owner = _entry(
    "bucket_owner", ARTIFACTS_BUCKET, "owner",
    writes=(STORE,), reads=(STORE,), carries="BucketOwner",
)
# fmt: on
ENTRIES = tuple(row for row in vars().values() if isinstance(row, Subject))
"""The table."""


def model_key(name: str) -> str:
    """The key of a model's profile: its name, with `=XX` for each byte that keys do not take."""
    data = name.encode("utf-8", "surrogatepass")
    return model_profile(re.sub(rb"[^A-Za-z0-9_/-]", lambda found: b"=%02X" % found[0][0], data).decode())


def run_key(tenant: str, requested_at: int, run: str) -> str:
    """The run's key in the index. `requested_at`: Unix ms."""
    return run_entry(tenant, f"{requested_at:012x}{checked_id(run)}")


def parse_run_key(key: str) -> tuple[str, str]:
    """Return tenant and run of a key in the index, or raise InvalidName."""
    tenant, entry = run_entry.parsed(key)
    return tenant, entry[12:]


def session_key(session_id: str) -> str:
    """The part of subjects and keys that stands for a session, whose id is any text of the caller."""
    return _digest(session_id)


def session_entry_key(tenant: str, created_at: int, session_key: str) -> str:
    """The session's key in the index. `created_at`: Unix ms."""
    return session_entry(tenant, f"{created_at:012x}{checked_id(session_key)}")


def spent_key(tenant: str, key_id: str, day: str, run: str) -> str:
    """The key of what a run has spent for its API key. `day`: of the run's request by UTC, as YYYYMMDD."""
    return key_spent(tenant, _digest(key_id), day, run)


def spent_on(tenant: str, key_id: str, day: str) -> str:
    """All keys of what the runs of an API key have spent on a day."""
    return key_spent.pattern(tenant=tenant, api_key=_digest(key_id), day=day)


def run_of_spent_key(key: str) -> str:
    """Return the run of a key that `spent_key` has built, or raise InvalidName."""
    return checked_id(key.rpartition(".")[2])


def login_key(cookie: str) -> str:
    """The key of a login of the playground, of which only the digest of its cookie is known here."""
    return login_entry(_digest(cookie))


def listing(session: str | None, run: str | None) -> str:
    """The session and run of an artifact, as two tokens.

    The name of a session is any text of the caller, so its digest is used.
    """
    in_session = "-" if session is None else session_key(session)
    return f"{in_session}.{checked_id(run) if run else '-'}"


def listing_key(tenant: str, where: str, artifact: str) -> str:
    """The key of an artifact's entry in the list of its session and run. `where` comes from `listing`."""
    return artifact_listing(tenant, *where.split("."), artifact)


def parse_listing_key(key: str) -> tuple[str, str]:
    """Return tenant and artifact of an entry, or raise InvalidName."""
    tenant, _, _, artifact = artifact_listing.parsed(key)
    return tenant, artifact


def listings_of(tenant: str, session: str | None, run: str | None) -> str:
    """The pattern of the entries of a session, of a run, or of both (the fastest); without either, of the tenant."""
    chosen = {"session": session_key(session)} if session is not None else {}
    return artifact_listing.pattern(tenant=tenant, **chosen, **({"run_or_none": checked_id(run)} if run else {}))


def own_id_key(tenant: str, where: str, given_id: str, namespace: str | None) -> str:
    """The key of the artifact with an id of a tool. `where`: from `listing`, for the session or the run alone."""
    return own_id(tenant, *where.split("."), _digest(given_id), _digest(namespace or ""))


def own_ids_of(tenant: str, where: str, given_id: str) -> str:
    """The pattern of the entries of an id in a session or run, one for each tool that gave it."""
    session, run = where.split(".")
    return own_id.pattern(tenant=tenant, session=session, run_or_none=run, own_id=_digest(given_id))


def new_object_name(artifact: str) -> str:
    """Make the name of an object for the bytes of an artifact, which no other object has had."""
    return f"{new_id()[-_NONCE_CHARACTERS:]}-{checked_id(artifact)}"


def artifact_of_object(name: str) -> str:
    """Return the artifact that the name of an object contains, or raise InvalidName."""
    return _OBJECT.checked(name)[_NONCE_CHARACTERS + 1 :]


def object_key(tenant: str, name: str) -> str:
    """The key of an object in the S3 bucket, of [a-z0-9/_-] only, since S3 servers differ on other characters."""
    return f"{checked_tenant(tenant)}/{_OBJECT.checked(name)[:2]}/{name}"


def parse_object_key(key: str) -> tuple[str, str]:
    """Return tenant and name of an object, or raise InvalidName."""
    tenant, _, rest = key.partition("/")
    name = rest.partition("/")[2]
    if key != object_key(tenant, name):
        raise InvalidName(f"{shortened(key)!r} is not the key of an object")
    return tenant, name


def _digest(text: str) -> str:
    """The part of a key that stands for any text of a caller or tool."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
