"""Attacks on NATS itself, by tools and listeners: each returns whether it succeeded."""

import json
from collections.abc import Awaitable, Callable

from contracts.wire.names import new_id
from tests.identities.scene import Scene
from tests.identities.users import RUN

Attack = Callable[[Scene], Awaitable[bool]]
ATTACKS: list[Attack] = []

TOOL, LISTENER, RUN_LISTENER = "tool_geo", "listener_acme", f"run_other_{RUN}"


def attack(function: Attack) -> Attack:
    """Enter an attack into the list."""
    ATTACKS.append(function)
    return function


@attack
async def tool_calls_another_tool(scene: Scene) -> bool:
    """Spend its money, or have it write something."""
    me, victim = await scene.as_(TOOL), await scene.as_("tool_weather")
    await victim.subscribe("tool.weather", "weather")
    await me.publish("tool.weather", b"{}", "_INBOX.x")
    return await me.reaches(victim)


@attack
async def tool_takes_calls_of_another_tool(scene: Scene) -> bool:
    """In its queue group, beside it, or by a wildcard."""
    outcomes = []
    for subject, queue in (("tool.weather", "weather"), ("tool.weather", ""), ("tool.*", "geo"), ("tool.>", "")):
        me = await scene.as_(TOOL)
        await me.subscribe(subject, queue)
        await scene.operator.send("tool.weather", b"{}")
        outcomes.append(await me.reaches(me))
    return any(outcomes)


@attack
async def tool_registers_under_the_name_of_another(scene: Scene) -> bool:
    """It would be asked for the specification."""
    me = await scene.as_(TOOL)
    await me.subscribe("$SRV.INFO.weather")
    await scene.operator.send("discover.INFO.weather", b"", reply=f"answer.weather.{new_id()}.1")
    return await me.reaches(me)


@attack
async def tool_reads_a_run(scene: Scene) -> bool:
    """Live."""
    me = await scene.as_(TOOL)
    await me.subscribe("run.other.*.*")
    await scene.write(scene.log)
    return await me.reaches(me)


@attack
async def tool_reads_inboxes(scene: Scene) -> bool:
    """Of services, of tool runners, of discovery."""
    outcomes = []
    for pattern in ("_INBOX.>", "_INBOX.*.*", "answer.>", "hello.>"):
        me = await scene.as_(TOOL)
        await me.subscribe(pattern)
        for subject in ("_INBOX.planner.1", f"answer.weather.{new_id()}.1", f"hello.{new_id()}"):
            await scene.operator.send(subject)
        outcomes.append(await me.reaches(me))
    return any(outcomes)


@attack
async def tool_ends_a_run(scene: Scene) -> bool:
    """A terminal record on its log."""
    return await scene.stores(TOOL, "RUNS", scene.log, b'{"v":1,"events":[{"type":"cancelled"}]}')


@attack
async def tool_has_the_server_write_a_log(scene: Scene) -> bool:
    """Acknowledgements and other answers of JetStream, with the log as the reply subject."""
    asked = (f"request.other.{new_id()}", f"call.other.{new_id()}.geo", "$JS.API.INFO", "probe.RUNS")
    return any([await scene.stores(TOOL, "RUNS", subject, reply=scene.log) for subject in asked])


@attack
async def tool_deletes_a_stream(scene: Scene) -> bool:
    """With all runs."""
    me = await scene.as_(TOOL)
    await me.publish("$JS.API.STREAM.DELETE.RUNS", b"", "_INBOX.x")

    async def is_gone() -> bool:
        return await scene.messages("RUNS") is None

    return await me.achieves(is_gone)


@attack
async def tool_takes_work_of_others(scene: Scene) -> bool:
    """It pulls a run's request from the planner's consumer, or acknowledges it."""
    me, acknowledger = await scene.as_(TOOL), await scene.as_(TOOL)
    await scene.write(f"request.other.{scene.run}")
    pulled = await me.request("$JS.API.CONSUMER.MSG.NEXT.REQUESTS.planner", b'{"batch":1,"no_wait":true}')
    before = await scene.messages("REQUESTS")
    await acknowledger.publish(pulled.reply if pulled else "$JS.ACK.REQUESTS.planner.1.1.1.0.0", b"+ACK")

    async def is_gone() -> bool:
        return await scene.messages("REQUESTS") != before

    return await acknowledger.achieves(is_gone)


@attack
async def tool_writes_the_catalogue(scene: Scene) -> bool:
    """A specification of its own for another tool, or the list of those that are accepted."""
    entries = (f"$KV.catalogue.{kind}.{scene.run}" for kind in ("tool", "accepted", "spec"))
    return any([await scene.stores(TOOL, "KV_catalogue", subject) for subject in entries])


@attack
async def listener_reads_another_tenant(scene: Scene) -> bool:
    """Live, by patterns that its own tenant matches too, or before the log is stored."""
    outcomes = []
    for pattern in ("run.other.*.*", "run.*.*.*", "run.*.>", "run.>", f"run.other.{scene.run}.*", scene.log):
        me = await scene.as_(LISTENER)
        await me.subscribe(pattern)
        await scene.write(scene.log)
        outcomes.append(await me.reaches(me))
    return any(outcomes)


@attack
async def listener_reads_history_of_another_tenant(scene: Scene) -> bool:
    """By a body that names it, by its exact subject, or by a pattern."""
    await scene.write(scene.log)
    asked = json.dumps({"last_by_subj": scene.log}).encode()
    outcomes = []
    for subject, body in (
        ("$JS.API.DIRECT.GET.RUNS", asked),
        ("$JS.API.STREAM.MSG.GET.RUNS", asked),
        (f"$JS.API.DIRECT.GET.RUNS.{scene.log}", b""),
        ("$JS.API.DIRECT.GET.RUNS.emit.*.*.log", b""),
        ("$JS.API.DIRECT.GET.RUNS.emit.>", b""),
    ):
        me = await scene.as_(LISTENER)
        outcomes.append(await me.request(subject, body))
    return any(reply is not None and scene.log in str(reply.headers) + str(reply.data) for reply in outcomes)


@attack
async def listener_forges_a_live_record(scene: Scene) -> bool:
    """Of its own tenant."""
    me, other = await scene.as_(LISTENER), await scene.as_("gateway")
    await other.subscribe("run.*.*.*")
    await me.publish(f"run.acme.{scene.run}.log", b"{}")
    return await me.reaches(other)


@attack
async def gateway_calls_tools_and_writes_logs(scene: Scene) -> bool:
    """A service that is taken over has no more than its own subjects."""
    calls, timers = f"call.other.{scene.run}.weather", f"timer.other.{scene.run}.x"
    written = (("RUNS", scene.log), ("CALLS", calls), ("TIMERS", timers))
    return any([await scene.stores("gateway", stream, subject) for stream, subject in written])
