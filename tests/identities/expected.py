"""Who may publish and receive what: the rights of `contracts.wire.rights`, as a server understands them.

What the services and tools say to each other is in the tables of `subjects` and `keys`: a new row is tried by itself.
JetStream, wildcards and what nobody may do are tables here.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import product

from contracts.asyncapi import CHANNELS
from contracts.wire.subject import GATEWAY, PLANNER, SERVICES, STORE, TOOL, TOOL_RUNNER, Subject
from tests.identities.users import OTHER_RUN, RUN, USERS, User

Expected = Mapping[str, set[str]]
"""Subject -> the users who may. `operator` may do everything in its account, and is in no table."""
ID = "a" * 32
VALUES: Mapping[str, tuple[str, ...]] = {
    "tenant": ("acme", "other"),
    "run": (RUN, OTHER_RUN),
    "tool": ("weather", "geo", "moon"),
    "service": ("weather", "geo", "moon", *(f"runwire-{service}" for service in SERVICES)),
    "verb": ("PING", "INFO", "STATS"),
    "stream": ("REQUESTS", "CALLS", "ANNOUNCED"),
    "instance": (ID,),
    "kept_in": ("RUNS", "KV_runs"),
    "sequence": ("7",),
    "run_or_none": (RUN, "-"),
}
"""Parameter -> the values that are tried; any other parameter has one."""
ASKS_MICRO_SERVICES = {"tools_operator"}

STREAMS = {
    *("REQUESTS", "INBOX", "RUNS", "SESSIONS", "CALLS", "TIMERS", "DEAD", "HANDLINGS", "HELD"),
    *("KV_artifacts", "KV_catalogue", "KV_runs"),
}
IN_CORE = {*SERVICES, "provisioner"}
_PLANNER, _PROVISIONER = {PLANNER}, {"provisioner"}
_READERS = {
    "REQUESTS": {GATEWAY, PLANNER, STORE},
    "INBOX": {PLANNER, TOOL_RUNNER},
    "RUNS": {*SERVICES},
    "SESSIONS": {GATEWAY, PLANNER},
    "CALLS": {TOOL_RUNNER},
    "HANDLINGS": {PLANNER, TOOL_RUNNER},
    "HELD": {PLANNER},
    "KV_artifacts": {STORE},
    "KV_catalogue": {GATEWAY, PLANNER, TOOL_RUNNER},
    "KV_runs": {GATEWAY, PLANNER},
}
_OF_STREAMS: Mapping[str, Mapping[str, set[str]]] = {
    "STREAM.INFO": dict.fromkeys(STREAMS, IN_CORE),
    "STREAM.CREATE": dict.fromkeys(STREAMS, _PROVISIONER),
    "STREAM.UPDATE": dict.fromkeys(STREAMS, _PROVISIONER),
    "STREAM.PURGE": {
        **dict.fromkeys(("REQUESTS", "INBOX", "RUNS", "SESSIONS", "CALLS", "TIMERS", "KV_runs"), _PLANNER),
        "KV_catalogue": {TOOL_RUNNER},
    },
    "STREAM.MSG.GET": _READERS,
    "STREAM.MSG.DELETE": dict.fromkeys(("REQUESTS", "INBOX"), _PLANNER),
    "STREAM.DELETE": {},
    "STREAM.SNAPSHOT": {},
    "STREAM.RESTORE": {},
    "STREAM.LEADER.STEPDOWN": {},
    "STREAM.PEER.REMOVE": {},
    "DIRECT.GET": _READERS,
    "CONSUMER.NAMES": {"CALLS": {TOOL_RUNNER}},
    "CONSUMER.LIST": {},
    "CONSUMER.CREATE": {},
}
"""Request to JetStream -> stream -> who may send it."""
_OF_CONSUMERS: Expected = {
    "CONSUMER.CREATE.REQUESTS.planner.request.*.*": {"provisioner"},
    "CONSUMER.CREATE.INBOX.planner.inbox.*.*.*": {"provisioner"},
    "CONSUMER.CREATE.INBOX.planner_control.control.*.*.*": {"provisioner"},
    "CONSUMER.CREATE.INBOX.planner_session.session_inbox.*.*.*": {"provisioner"},
    "CONSUMER.CREATE.INBOX.planner.control.*.*.*": set(),
    "CONSUMER.CREATE.INBOX.other.inbox.*.*.*": set(),
    "CONSUMER.CREATE.RUNS.mine.emit.acme.*.log": set(),
    "CONSUMER.CREATE.CALLS.tool_weather.call.*.*.weather": {TOOL_RUNNER},
    "CONSUMER.DURABLE.CREATE.CALLS.tool_weather": set(),
    "CONSUMER.DELETE.CALLS.tool_weather": {TOOL_RUNNER},
    "CONSUMER.DELETE.INBOX.planner": set(),
    "CONSUMER.INFO.CALLS.tool_weather": {TOOL_RUNNER},
    "CONSUMER.INFO.INBOX.planner": {PLANNER},
    "CONSUMER.MSG.NEXT.CALLS.tool_weather": {TOOL_RUNNER},
    "CONSUMER.MSG.NEXT.REQUESTS.planner": {PLANNER},
    "CONSUMER.MSG.NEXT.INBOX.planner": {PLANNER},
    "CONSUMER.MSG.NEXT.INBOX.planner_control": {PLANNER},
    "CONSUMER.MSG.NEXT.INBOX.planner_session": {PLANNER},
    "CONSUMER.MSG.NEXT.INBOX.other": set(),
    "CONSUMER.PAUSE.INBOX.planner": set(),
    "CONSUMER.UNPIN.INBOX.planner": set(),
    "CONSUMER.LEADER.STEPDOWN.INBOX.planner": set(),
    f"DIRECT.GET.RUNS.emit.acme.{RUN}.log": {*SERVICES, "listener_acme"},
    f"DIRECT.GET.RUNS.emit.acme.{RUN}.stream": {*SERVICES},
    f"DIRECT.GET.RUNS.emit.other.{RUN}.log": {*SERVICES, f"run_other_{RUN}"},
    f"DIRECT.GET.RUNS.emit.other.{OTHER_RUN}.log": {*SERVICES},
    "DIRECT.GET.RUNS.barrier": {*SERVICES},
    f"DIRECT.GET.KV_runs.$KV.runs.acme.{ID}": _READERS["KV_runs"],
    f"DIRECT.GET.KV_artifacts.$KV.artifacts.ref.acme.{ID}": {STORE},
    "INFO": set(),
    "STREAM.LIST": set(),
    "STREAM.NAMES": set(),
    "STREAM.CREATE.OTHER": set(),
    "META.LEADER.STEPDOWN": set(),
    "ACCOUNT.PURGE.CORE": set(),
    "SERVER.REMOVE": set(),
}
_MAY_PUBLISH: Expected = {
    **{f"$JS.API.{api}.{stream}": by.get(stream, set()) for api, by in _OF_STREAMS.items() for stream in STREAMS},
    **{f"$JS.API.{api}": by for api, by in _OF_CONSUMERS.items()},
    "$JS.ACK.REQUESTS.planner.1.1.1.1.0": {PLANNER},
    "$JS.ACK.INBOX.planner.1.1.1.1.0": {PLANNER},
    "$JS.ACK.INBOX.planner_control.1.1.1.1.0": {PLANNER},
    "$JS.ACK.INBOX.other.1.1.1.1.0": set(),
    "$JS.ACK.CALLS.tool_weather.1.1.1.1.0": {TOOL_RUNNER},
    "$JS.FC.RUNS.x.y": set(),
    **{f"_INBOX.{user}.k.1": set() for user in USERS},
    "_INBOX.gateway.k.1": {STORE, TOOL_RUNNER, PLANNER},
    "_INBOX.planner.k.1": {STORE, TOOL_RUNNER},
    "_INBOX.tool_runner.k.1": {STORE},
    "_INBOX.operator.k.1": {*SERVICES},
    "_INBOX.tools_operator.k.1": {name for name, user in USERS.items() if user.role == TOOL},
    "_INBOX.k.1": set(),
    "$SYS.REQ.SERVER.X.RELOAD": {"reloader"},
    "$SYS.REQ.SERVER.PING": set(),
    "$SYS.REQ.SERVER.PING.CONNZ": set(),
    "$SYS.REQ.ACCOUNT.CORE.INFO": set(),
    "$SYS.REQ.CLAIMS.UPDATE": set(),
    "$SYS.REQ.USER.AUTH": set(),
    "$SRV.PING.geo.id.more": ASKS_MICRO_SERVICES,
    "$KV.other.key": set(),
    "$KV.catalogue.other.key": set(),
    "$KV.artifacts.anything": {STORE},
    "$KV.runs.anything": set(),
    "$O.other.C.x": set(),
    "discover.STATS": set(),
    "discover.STATS.weather": set(),
    "discover.INFO.weather.id": set(),
    "direct.there": set(),
    "tool.weather.other": set(),
    "tool.weather.status.more": set(),
    "hello.a.b": set(),
    "anything.else": set(),
    "run": set(),
}
_ALL_TOOLS = {name for name, user in USERS.items() if user.role == TOOL}
_MAY_SUBSCRIBE: Mapping[tuple[str, str], set[str]] = {
    **{
        (pattern, ""): set()
        for pattern in (
            *(">", "*", "*.*", "*.*.*", "*.>", "*.*.*.log", "_INBOX.>", "_INBOX.*.>", "_INBOX.*.k.*"),
            *("$JS.>", "$JS.API.>", "$JS.ACK.>", "$JS.EVENT.>", "$KV.>", "$KV.*.>", "$KV.catalogue.>", "$KV.runs.>"),
            *("$KV.artifacts.>", "$SYS.>", "$SYS.ACCOUNT.>", "$SYS.REQ.>", "$SYS._INBOX.>", "$SRV.>", "$SRV.*"),
            *("emit.>", "emit.*.*.*", "emit.acme.*.log", "request.>", "request.*.*", "inbox.>", "control.>"),
            *("call.>", "call.*.*.*", "timer.>", "due.>", "dead.>", "dead.*", "handling.>", "context.>", "probe.>"),
            *("discover.>", "discover.PING", "discover.INFO.weather", "run.*.>", "run.>", "run.*.*.*.more"),
            *("direct.>", "direct.*.*", "tool.weather.>", "tool.*.>", "artifact.*", "_R_.>", "_GR_.>", "$G.>"),
        )
    },
    # The last `*` of a right also allows `>` in its place.
    **{(f"_INBOX.{user}.k.*", ""): {user} for user in IN_CORE | {"tools_operator", "reloader"}},
    **{(f"_INBOX.{user}.>", ""): {user} for user in ("listener_acme", f"run_other_{RUN}")},
    **{(f"_INBOX.{user}.>", ""): set() for user in _ALL_TOOLS},
    ("_INBOX.operator.k.*", ""): set(),
    ("tool.>", ""): {"local"},
    ("tool.*", ""): {"local"},
    ("tool.*.status", ""): {"local"},
    ("tool.weather", ""): {"local"},
    ("tool.weather", "other"): {"local"},
    ("tool.moon", "sun"): {"local"},
    ("tool.weather.status", "any"): {"local", "tool_weather"},
    ("artifact.put", ""): set(),
    ("artifact.put", "other"): set(),
    ("run.acme.>", ""): {"listener_acme"},
    ("session.acme.>", ""): {"listener_acme"},
    ("session.other.>", ""): set(),
    ("session.>", ""): set(),
    ("session.*.*.log", ""): {GATEWAY},
    ("run.other.>", ""): set(),
    (f"run.other.{RUN}.>", ""): {GATEWAY, f"run_other_{RUN}"},
    (f"run.other.{RUN}.*", ""): {GATEWAY, f"run_other_{RUN}"},
    ("run.acme.*.*", ""): {GATEWAY, "listener_acme"},
    ("run.other.*.*", ""): {GATEWAY},
    ("run.*.*.*", ""): {GATEWAY},
    ("run.*.*.log", ""): {GATEWAY, PLANNER, TOOL_RUNNER},
    ("answer.>", ""): set(),
    ("answer.*.*.*", ""): {TOOL_RUNNER},
    (f"answer.weather.{ID}.*", ""): {TOOL_RUNNER},
    ("hello.>", ""): {TOOL_RUNNER},
    ("direct.*.call", ""): {TOOL_RUNNER},
    ("$SRV.PING.*", ""): {"local"},
    ("$SRV.INFO.weather.*", ""): {"local", "tool_weather"},
    ("$KV.catalogue.tool.*", ""): {GATEWAY, PLANNER, TOOL_RUNNER},
    ("$KV.catalogue.*.*", ""): set(),
}


def publishing() -> dict[str, set[str]]:
    """Every subject that is tried, and who may publish on it."""
    rows: dict[str, set[str]] = {subject: {*users} for subject, users in _MAY_PUBLISH.items()}
    for channel, subject, values in _of_channels():
        asks = ASKS_MICRO_SERVICES if channel.address.startswith("$SRV.") else set()
        sends = {name for name, user in USERS.items() if user.role in channel.writes and user.owns(values)}
        rows[subject] = asks or sends
    return rows


def subscribing() -> dict[tuple[str, str], set[str]]:
    """Every subject that is tried with its queue group, and who may subscribe to it."""
    rows = {where: {*users} for where, users in _MAY_SUBSCRIBE.items()}
    for channel, subject, values in _of_channels():
        queue = "" if channel.kept_in else channel.queue.format_map(values)
        rows[subject, queue] = {name for name, user in USERS.items() if _receives(user, channel, values)}
    return rows


def _receives(user: User, channel: Subject, values: Mapping[str, str]) -> bool:
    if channel.kept_in:
        return user.role in channel.watched_by
    if channel.address.startswith("discover."):
        return False  # Tools receive it below `$SRV.`.
    return user.role in channel.reads and user.owns(values)


def _of_channels() -> Iterator[tuple[Subject, str, dict[str, str]]]:
    for channel in CHANNELS:
        names = re.findall(r"{(\w+)}", channel.channel)
        for chosen in product(*(VALUES.get(name, ("x1",)) for name in names)):
            values = dict(zip(names, chosen, strict=True))
            yield channel, channel.channel.format_map(values), values
