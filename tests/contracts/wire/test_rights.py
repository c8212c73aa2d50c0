"""Rights on NATS say the same as the description of the subjects: who sends, who receives."""

import re

import pytest

from contracts.wire import rights
from contracts.wire.channel import SERVICES, TOOL, Channel
from contracts.wire.channels import CHANNELS
from contracts.wire.names import InvalidName
from contracts.wire.rights import Rights

PLATFORM = rights.of_platform()
RUN = "0" * 32


def covers(pattern: str, subject: str) -> bool:
    """Whether a subject, or another pattern, is part of a pattern of NATS."""
    wanted, given = pattern.split(" ", maxsplit=1)[0].split("."), subject.split(" ", maxsplit=1)[0].split(".")
    for number, token in enumerate(wanted):
        if token == ">":
            return len(given) > number
        if number >= len(given) or token not in {"*", given[number]}:
            return False
    return len(wanted) == len(given)


def may(allowed: tuple[str, ...], subject: str) -> bool:
    """Whether one of the patterns has the subject."""
    return any(covers(pattern, subject) for pattern in allowed)


def pattern_of(channel: Channel, **known: str) -> str:
    """All subjects of a channel."""
    return re.sub(r"\{(\w+)\}", lambda found: known.get(found[1], "*"), channel.address)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_may_publish_what_it_sends(service: str) -> None:
    """And of the subjects of the product nothing else."""
    allowed = PLATFORM[service].publish
    sent = [pattern_of(channel) for channel in CHANNELS if service in channel.senders]
    assert [subject for subject in sent if not may(allowed, subject)] == []
    own = [subject for subject in allowed if not subject.startswith(("$JS.", "_INBOX."))]
    of_channels = {pattern_of(channel) for channel in CHANNELS if service in channel.senders}
    assert [subject for subject in own if not any(covers(subject, each) for each in of_channels)] == []


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_may_receive_what_it_receives(service: str) -> None:
    """What a stream stores is read instead, and not subscribed to, but for entries that count at once."""
    allowed = PLATFORM[service].subscribe
    known = {"service": f"runwire-{service}"}
    for channel in CHANNELS:
        for verb in ("PING", "INFO", "STATS"):
            subject = pattern_of(channel, verb=verb, **known)
            if not channel.kept_in or channel.name == "key_spent":
                assert may(allowed, subject) == (service in channel.receivers), (channel.name, subject)
            elif not channel.address.startswith("$KV.catalogue."):
                assert not may(allowed, subject), (channel.name, subject)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_may_answer_who_asks_it(service: str) -> None:
    """On the inboxes of those services and of the operator."""
    askers = {
        sender
        for channel in CHANNELS
        if service in channel.receivers and channel.replies
        for sender in channel.senders
        if sender in SERVICES
    }
    inboxes = {subject for subject in PLATFORM[service].publish if subject.startswith("_INBOX.")}
    assert inboxes == {f"_INBOX.{asker}.>" for asker in (*askers, "operator")}


def test_a_tool_may_do_what_a_tool_does_under_its_own_name() -> None:
    """Publish its answers, receive its calls."""
    weather = rights.of_tool("weather")
    for channel in CHANNELS:
        own = [pattern_of(channel, tool="weather", service="weather", verb=verb) for verb in ("PING", "INFO", "STATS")]
        if TOOL in channel.senders:
            assert may(weather.publish, own[0]), channel.name
            assert "{tool}" not in channel.address or not may(weather.publish, pattern_of(channel, tool="geo"))
        if TOOL in channel.receivers and not channel.address.startswith("discover."):
            assert all(may(weather.subscribe, subject) for subject in own), channel.name
    assert {subject.split(".")[0] for subject in weather.publish} == {"answer", "hello", "_INBOX"}
    assert {subject.split(".")[0] for subject in weather.subscribe} == {"tool", "$SRV"}


@pytest.mark.parametrize("name", sorted(PLATFORM))
def test_nobody_but_the_operator_may_do_what_nobody_needs(name: str) -> None:
    """Delete a stream, write a live record, read another's inbox."""
    if name == rights.OPERATOR:
        return
    publish = ("run.acme.x.log", "due.acme.x.y", *(f"$JS.API.STREAM.{verb}.RUNS" for verb in ("DELETE", "SNAPSHOT")))
    assert [subject for subject in publish if may(PLATFORM[name].publish, subject)] == []
    others = [f"_INBOX.{other}.x" for other in PLATFORM if other != name]
    assert [
        subject for subject in (">", "$JS.>", "emit.*.*.log", *others) if may(PLATFORM[name].subscribe, subject)
    ] == []


def test_a_listener_hears_its_tenant_and_nobody_else() -> None:
    """And reads the last record of a log, with no body that could name another."""
    acme, one = rights.of_listener("listener_acme", "acme"), rights.of_listener("x", "acme", RUN)
    assert may(acme.subscribe, f"run.acme.{RUN}.log")
    assert not may(acme.subscribe, f"run.other.{RUN}.log")
    assert one.subscribe == (f"run.acme.{RUN}.>", "_INBOX.x.>")
    assert one.publish == (f"$JS.API.DIRECT.GET.RUNS.emit.acme.{RUN}.log",)
    assert acme.publish == ("$JS.API.DIRECT.GET.RUNS.emit.acme.*.log",)


def test_names_are_checked() -> None:
    """A wildcard in a name would be a right."""
    for bad in ("*", ">", "a.b", "", "a b"):
        with pytest.raises(InvalidName):
            rights.of_tool(bad)
        with pytest.raises(InvalidName):
            rights.of_listener("x", bad)
    assert isinstance(rights.of_local_tools(), Rights)
    assert {*rights.of_platform()} >= {*SERVICES}
