"""Every key of the KV buckets and of the S3 bucket, built and parsed here and nowhere else. Subjects are in `subjects`.

Rule 1: a name that comes from outside is checked (`names`), or refused with `InvalidName`.
Rule 2: keys of KV buckets are described in `channels`, as `$KV.<bucket>.<key>`; those of the S3 bucket are not
subjects.
"""

import hashlib
import re

from .ids import new_id
from .names import InvalidName, checked, checked_id, checked_tenant, checked_tool, shortened

CATALOGUE_BUCKET, RUNS_BUCKET, ARTIFACTS_BUCKET = "catalogue", "runs", "artifacts"

ALL_SPECS = "spec.*"
ALL_TOOLS = "tool.*"
ALL_REFUSED = "refused.*"
ALL_ACCEPTED = "accepted.*"
ALL_MODELS = "model.*"
ALL_DELETIONS = "deleted.*.*"
ALL_SCHEDULES = "schedule.*.*"

ARTIFACT_OWNER_KEY = "owner"
"""The key, in the KV bucket of artifacts, of the random mark that the S3 bucket holds too."""
OWNER_OBJECT_KEY = "runwire/owner"
"""The key of the same mark in the S3 bucket."""

_DAY = re.compile(r"[0-9]{8}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{24}", re.ASCII)
_LISTING = re.compile(r"([0-9a-f]{32}|-)\.([0-9a-f]{32}|-)", re.ASCII)
_OBJECT = re.compile(r"[0-9a-f]{8}-[0-9a-f]{32}", re.ASCII)
_OWN_ID = re.compile(rf"own\.[^.]+\.{_LISTING.pattern}(\.[0-9a-f]{{32}}){{2}}", re.ASCII)
_NONCE_CHARACTERS = 8


def tool_key(name: str) -> str:
    """The catalogue's key of a live tool. The entry expires when the tool is gone."""
    return f"tool.{checked_tool(name)}"


def refused_key(name: str) -> str:
    """The catalogue's key of a tool that is refused. The entry expires when the tool stops announcing itself."""
    return f"refused.{checked_tool(name)}"


def accepted_key(name: str) -> str:
    """The catalogue's key of the accepted specifications of a tool. It stays until an operator removes it."""
    return f"accepted.{checked_tool(name)}"


def spec_key(digest: str) -> str:
    """The catalogue's key of a tool's specification. Runs refer to it, so it stays."""
    return f"spec.{checked(_DIGEST, 'digest', digest)}"


def model_key(name: str) -> str:
    """The catalogue's key of a model's profile: its name, with `=XX` for each byte that keys do not take."""
    return (
        "model."
        + re.sub(
            rb"[^A-Za-z0-9_/-]", lambda found: b"=%02X" % found[0][0], name.encode("utf-8", "surrogatepass")
        ).decode()
    )


def run_key(tenant: str, requested_at: int, run: str) -> str:
    """The run's key in the index; keys of a tenant sort by the time of the request (`requested_at` in Unix ms)."""
    return f"{checked_tenant(tenant)}.{requested_at:012x}{checked_id(run)}"


def parse_run_key(key: str) -> tuple[str, str]:
    """Return tenant and run of a key in the index, or raise InvalidName."""
    tenant, _, rest = key.partition(".")
    if not re.fullmatch(r"[0-9a-f]{12}", rest[:12], re.ASCII):
        raise InvalidName(f"{shortened(key)!r} is not the key of a run")
    return checked_tenant(tenant), checked_id(rest[12:])


def session_key(session_id: str) -> str:
    """The part of subjects and keys that stands for a session, whose id is any text of the caller."""
    return _digest(session_id)


def session_entry_key(tenant: str, created_at: int, session_key: str) -> str:
    """The session's key in the index; keys of a tenant sort by the time of creation (`created_at`, Unix ms)."""
    return f"session.{checked_tenant(tenant)}.{created_at:012x}{checked_id(session_key)}"


def sessions_of(tenant: str) -> str:
    """All keys of a tenant's sessions in the index."""
    return f"session.{checked_tenant(tenant)}.*"


def runs_of(tenant: str) -> str:
    """All keys of a tenant in the index of runs."""
    return f"{checked_tenant(tenant)}.*"


def deletion_key(tenant: str, run: str) -> str:
    """The key, in the index of runs, of a run's deletion; three tokens, so it is none of a tenant's runs."""
    return f"deleted.{checked_tenant(tenant)}.{checked_id(run)}"


def parse_deletion_key(key: str) -> tuple[str, str]:
    """Return tenant and run of a deletion's key, or raise InvalidName."""
    _, tenant, run = (*key.split("."), "", "", "")[:3]
    if key != deletion_key(tenant, run):
        raise InvalidName(f"{shortened(key)!r} is not the key of a deletion")
    return tenant, run


def spent_key(tenant: str, key_id: str, day: str, run: str) -> str:
    """The key of what a run has spent for its API key. `day`: of the run's request by UTC, as YYYYMMDD."""
    return f"{spent_on(tenant, key_id, day)[:-1]}{checked_id(run)}"


def spent_on(tenant: str, key_id: str, day: str) -> str:
    """All keys of what the runs of an API key have spent on a day."""
    return f"spent.{checked_tenant(tenant)}.{_digest(key_id)}.{checked(_DAY, 'day', day)}.*"


def run_of_spent_key(key: str) -> str:
    """Return the run of a key that `spent_key` has built, or raise InvalidName."""
    return checked_id(key.rpartition(".")[2])


def schedule_key(tenant: str, schedule: str) -> str:
    """The key of a schedule or webhook, in the index of runs."""
    return f"schedule.{checked_tenant(tenant)}.{checked_id(schedule)}"


def parse_schedule_key(key: str) -> tuple[str, str]:
    """Return tenant and id of a schedule's key, or raise InvalidName."""
    _, tenant, schedule = (*key.split("."), "", "", "")[:3]
    if key != schedule_key(tenant, schedule):
        raise InvalidName(f"{shortened(key)!r} is not the key of a schedule")
    return tenant, schedule


def schedules_of(tenant: str) -> str:
    """All keys of a tenant's schedules."""
    return f"schedule.{checked_tenant(tenant)}.*"


def webhook_key(schedule: str) -> str:
    """The key of a webhook's tenant and secret, in the index of runs; no run has a key of three tokens."""
    return f"webhook.{checked_id(schedule)}.secret"


def reference_key(tenant: str, artifact: str) -> str:
    """The key of an artifact's entry, in the bucket of artifacts."""
    return f"ref.{checked_tenant(tenant)}.{checked_id(artifact)}"


def parse_reference_key(key: str) -> tuple[str, str]:
    """Return tenant and artifact of an entry's key, or raise InvalidName."""
    _, tenant, artifact = (*key.split("."), "", "")[:3]
    if key != reference_key(tenant, artifact):
        raise InvalidName(f"{shortened(key)!r} is not the key of an artifact")
    return tenant, artifact


def is_reference_key(key: str) -> bool:
    """Whether a key of the bucket of artifacts is that of an artifact's entry."""
    return key.startswith("ref.")


def new_object_name(artifact: str) -> str:
    """Make the name of an object for the bytes of an artifact, which no other object has had."""
    return f"{new_id()[-_NONCE_CHARACTERS:]}-{checked_id(artifact)}"


def artifact_of_object(name: str) -> str:
    """Return the artifact that the name of an object contains, or raise InvalidName."""
    return checked(_OBJECT, "object name", name)[_NONCE_CHARACTERS + 1 :]


def object_key(tenant: str, name: str) -> str:
    """The key of an object in the S3 bucket, of [a-z0-9/_-] only, since S3 servers differ on other characters."""
    return f"{checked_tenant(tenant)}/{checked(_OBJECT, 'object name', name)[:2]}/{name}"


def parse_object_key(key: str) -> tuple[str, str]:
    """Return tenant and name of an object, or raise InvalidName."""
    tenant, _, rest = key.partition("/")
    name = rest.partition("/")[2]
    if key != object_key(tenant, name):
        raise InvalidName(f"{shortened(key)!r} is not the key of an object")
    return tenant, name


def listing(session: str | None, run: str | None) -> str:
    """The session and run of an artifact, as two tokens.

    The name of a session is any text of the caller, so its digest is used.
    """
    in_session = "-" if session is None else session_key(session)
    return f"{in_session}.{checked_id(run) if run else '-'}"


def listing_key(tenant: str, where: str, artifact: str) -> str:
    """The key of an artifact's entry in the list of its session and run. `where` comes from `listing`."""
    return f"list.{checked_tenant(tenant)}.{checked(_LISTING, 'listing', where)}.{checked_id(artifact)}"


def parse_listing_key(key: str) -> tuple[str, str]:
    """Return tenant and artifact of an entry, or raise InvalidName."""
    _, tenant, session, run, artifact = (*key.split("."), "", "", "", "", "")[:5]
    if key != listing_key(tenant, f"{session}.{run}", artifact):
        raise InvalidName(f"{shortened(key)!r} is not the key of an entry")
    return tenant, artifact


def listings_of(tenant: str, session: str | None, run: str | None) -> str:
    """The pattern of the entries of a session, of a run, or of both (the fastest); without either, of the tenant."""
    in_session, in_run = listing(session, run).split(".")
    return f"list.{checked_tenant(tenant)}.{in_session if session is not None else '*'}.{in_run if run else '*'}.*"


def own_id_key(tenant: str, where: str, own_id: str, namespace: str | None) -> str:
    """The key of the newest artifact to which a tool, its namespace, has given this id in a session or in a run.

    `where` comes from `listing`, for the session alone or for the run alone.
    """
    return f"{own_ids_of(tenant, where, own_id)[:-1]}{_digest(namespace or '')}"


def own_ids_of(tenant: str, where: str, own_id: str) -> str:
    """The pattern of the entries of an id in a session or run, one for each tool that gave it."""
    return f"own.{checked_tenant(tenant)}.{checked(_LISTING, 'listing', where)}.{_digest(own_id)}.*"


def is_own_id_key(key: str) -> bool:
    """Whether a key of the bucket of artifacts is that of an id which a tool gave."""
    return key.startswith("own.")


def parse_own_id_key(key: str) -> str:
    """Return the tenant of a key that `own_id_key` has built, or raise InvalidName."""
    if not _OWN_ID.fullmatch(key):
        raise InvalidName(f"{shortened(key)!r} is not the key of a tool's own id")
    return checked_tenant(key.split(".")[1])


def _digest(text: str) -> str:
    """The part of a key that stands for any text of a caller or tool."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
