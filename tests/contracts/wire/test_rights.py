"""Rights on NATS: what the tables do not say, and what nobody may do.

tests/identities tries every user on every subject of the tables.
"""

import pytest

from contracts.wire import rights
from contracts.wire.subject import SERVICES

PLATFORM = rights.of_platform()
RUN = "0" * 32


def may(allowed: tuple[str, ...], subject: str) -> bool:
    """Whether one of the patterns has the subject, or another pattern as a part."""

    def covers(wanted: list[str], given: list[str]) -> bool:
        if wanted[:1] == [">"]:
            return bool(given)
        if not wanted or not given:
            return wanted == given
        return wanted[0] in {"*", given[0]} and covers(wanted[1:], given[1:])

    return any(covers(pattern.partition(" ")[0].split("."), subject.split(".")) for pattern in allowed)


def test_a_service_has_the_rights_of_its_rows() -> None:
    """Each kind of right once: what it writes, hears, answers, reads and takes."""
    runner = PLATFORM["tool_runner"]
    sent = {"tool.*.cancel", "$KV.catalogue.spec.*", "probe.*", "_INBOX.planner.>", "_INBOX.operator.>"}
    read = {"$JS.API.DIRECT.GET.CALLS.>", "$JS.API.CONSUMER.MSG.NEXT.CALLS.*", "$JS.ACK.CALLS.*.>"}
    assert sent | read <= {*runner.publish}
    assert {"check.tool tool_runner", "run.*.*.log", "answer.*.*.*", "$KV.catalogue.accepted.*"} <= {*runner.subscribe}
    assert "run.*.*.*" in PLATFORM["gateway"].subscribe
    assert "$KV.artifacts.>" in PLATFORM["artifact_store"].publish
    assert not may(PLATFORM["gateway"].publish, "$JS.API.DIRECT.GET.TIMERS")  # It only counts timers.
    assert all("run.*.*.stream" not in PLATFORM[service].subscribe for service in SERVICES)


def test_a_tool_may_do_what_a_tool_does_under_its_own_name() -> None:
    """Publish its answers, receive its calls."""
    weather = rights.of_tool("weather")
    assert weather.publish == ("hello.*", "_INBOX.tools_operator.>", "answer.weather.>")
    told = {f"tool.weather.{verb}" for verb in ("status", "cancel", "rejected", "given")}
    assert {each for each in weather.subscribe if each.startswith("tool")} == {"tool.weather weather", *told}
    assert may(weather.subscribe, "$SRV.PING.weather.x")
    assert not may(weather.subscribe, "$SRV.PING.geo")


@pytest.mark.parametrize("name", sorted({*PLATFORM} - {rights.OPERATOR}))
def test_nobody_but_the_operator_may_do_what_nobody_needs(name: str) -> None:
    """Delete a stream, write a live record, read another's inbox."""
    publish = ("run.acme.x.log", "due.acme.x.y", *(f"$JS.API.STREAM.{verb}.RUNS" for verb in ("DELETE", "SNAPSHOT")))
    assert [subject for subject in publish if may(PLATFORM[name].publish, subject)] == []
    others = [f"_INBOX.{other}.x" for other in PLATFORM if other != name]
    subscribe = (">", "$JS.>", "emit.*.*.log", *others)
    assert [subject for subject in subscribe if may(PLATFORM[name].subscribe, subject)] == []


def test_a_listener_hears_its_tenant_and_nobody_else() -> None:
    """And reads the last record of a log, with no body that could name another."""
    acme, one = rights.of_listener("listener_acme", "acme"), rights.of_listener("x", "acme", RUN)
    assert may(acme.subscribe, f"run.acme.{RUN}.log")
    assert not may(acme.subscribe, f"run.other.{RUN}.log")
    assert one.subscribe == (f"run.acme.{RUN}.>", "_INBOX.x.>")
    assert one.publish == (f"$JS.API.DIRECT.GET.RUNS.emit.acme.{RUN}.log",)
    assert acme.publish == ("$JS.API.DIRECT.GET.RUNS.emit.acme.*.log",)
