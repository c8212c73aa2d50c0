"""What every test may ask for.

Servers are real: they come with the development environment, and each worker of a run has its own.
"""

import contextlib
import functools
import gc
import os
import ssl
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import certifi
import pytest
import pytest_timeout  # type: ignore[import-untyped]
from hypothesis import HealthCheck, settings
from pydantic_settings import EnvSettingsSource
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

from tests.support import samples
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server
from tests.support.up import running_up
from tests.unit_tests import Guard, is_unit

LIMIT_S, SLACK = 5, 4
"""A test outside `tests/system` may take so long on a quiet machine. It fails where it takes four times that and, on a
machine with more to do than cores, so much longer: processes start slowly beside other work, and a library that is
imported for the first time is compiled."""
FIXTURES_S, SYSTEM_S = 150, 180
"""So long may all fixtures of a test take to begin, and to end: pytest-timeout limits functions alone, since the first
test that uses a running system starts it. And so long a test of `tests/system` may take that says nothing else."""
BUILDS = ("chaos", "compose")
"""Marks of tests that may take longer: they build, and kill for minutes."""
TESTS = Path(__file__).parent
SYSTEM = TESTS / "system"
LITELLM = Path("planner/models")
"""Its tests run on one worker: LiteLLM takes four seconds to import."""
LONG = ("browser", "runwire/local/test_up.py", "runwire/test_docs.py", "tables/test_kills.py", "examples", LITELLM)
"""Folders and files that begin first, with the tests that share a system, so that no worker ends alone with a long one.
The others are mixed: those that wait leave the processor to those that do not."""
SYSTEMS = ("up", "tutorial_nats", "shared_system", "whole")
"""Fixtures with which a session starts many processes: the tests that use one run on one worker, other files whole."""

# Containers often say so. Then each of hundreds of processes would compile all sources again: half a second each.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Other work shares the cores: a slow example says nothing about the code.
for _name, _examples in {"unit": 20, "test": 40, "chaos": 1_000}.items():
    settings.register_profile(
        _name, deadline=None, max_examples=_examples, suppress_health_check=[HealthCheck.too_slow]
    )

_new_context = ssl.create_default_context
_public_context = functools.cache(_new_context)
_PUBLIC = {os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR") or certifi.where()}
"""Where the certificates of all authorities are, as httpx looks for them."""


def _shared_context(purpose: ssl.Purpose = ssl.Purpose.SERVER_AUTH, **given: Any) -> ssl.SSLContext:
    """The context of each HTTP client: to read the certificates of all authorities takes longer than most tests."""
    is_usual = (
        purpose is ssl.Purpose.SERVER_AUTH and given.keys() <= {"cafile", "capath"} and {*given.values()} == _PUBLIC
    )
    return (_public_context if is_usual else _new_context)(purpose, **given)


ssl.create_default_context = _shared_context
_read_environment = EnvSettingsSource.__call__


def _settings_of_environment(source: EnvSettingsSource) -> dict[str, Any]:
    """What variables say of settings. Each test makes some; to ask for every field takes a tenth of its time."""
    return _read_environment(source) if any(name.upper().startswith("RUNWIRE_") for name in os.environ) else {}


EnvSettingsSource.__call__ = _settings_of_environment  # type: ignore[assignment, method-assign]


def pytest_configure(config: pytest.Config) -> None:
    """Choose how much properties and samples try."""
    samples.begin(config)
    is_unit_run = config.option.markexpr == "unit"
    settings.load_profile("unit" if is_unit_run else "chaos" if samples.tries_all(config) else "test")


def pytest_report_header() -> str:
    """Say how to repeat this session."""
    return f"{samples.SEED}={samples.first_seed()}"


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None]:
    """Mark the tests that need no server, before pytest selects by marker; begin with those that take long."""
    for item in items if "unit" in config.option.markexpr else ():  # Seconds of each worker.
        if is_unit(item):
            item.add_marker("unit")
    chosen = set(samples.choose(config, items))
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]
    for item in items:
        path = item.path.relative_to(TESTS)
        group = _system_of(item) or str(LITELLM if path.is_relative_to(LITELLM) else path)
        item.add_marker(pytest.mark.xdist_group(group))
        if path.is_relative_to("system") and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SYSTEM_S))
    items.sort(key=_place)
    yield


@pytest.hookimpl(wrapper=True)
def pytest_collection_finish(session: pytest.Session) -> Generator[None]:
    """Tell the scheduler the group of each test. pytest-xdist 3.8 tries to by `_nodeid`, which pytest 9.2 ignores."""
    ids = [item._id for item in session.items]
    if session.config.getoption("loadgroup", default=False):
        for item in session.items:
            marker = item.get_closest_marker("xdist_group")
            assert marker is not None
            item._id = f"{item.nodeid}@{marker.args[0]}"  # type: ignore[assignment]
    yield
    for item, known in zip(session.items, ids, strict=True):
        item._id = known
    gc.collect()
    gc.freeze()  # Later collections need not look at what was imported.


class _Groups(LoadGroupScheduling):  # type: ignore[misc]
    """Goes on without a worker that died. That of pytest-xdist 3.8 hands out what had ended too, and may hang."""

    def remove_node(self, node: Any) -> str | None:
        """Leave to others what the worker had not begun. Returns the test that it died in."""
        tests = [test for unit in self.assigned_work.pop(node).values() for test, ended in unit.items() if not ended]
        for test in tests[1:]:
            self.workqueue.setdefault(self._split_scope(test), {})[test] = False
        for other in self.nodes:
            self._reschedule(other)
        return tests[0].rpartition("@")[0] if tests else None

    def schedule(self) -> None:
        """Give each worker two groups, or the end: it begins with a test when it knows what follows."""
        for _ in range(2):
            super().schedule()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadGroupScheduling | None:
    """Choose who shares out the tests."""
    return _Groups(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    """Fail where tests of one group could run on several workers, each of which would start its systems again."""
    assert node.config.option.dist != "loadgroup" or all("@" in each for each in ids)


def _place(item: pytest.Item) -> tuple[bool, str]:
    """Later, if greater. The tests of a system stand together, as their worker has them."""
    system, path = _system_of(item), item.path.relative_to(TESTS)
    return system is None and not any(path.is_relative_to(each) for each in LONG), system or ""


def _system_of(item: pytest.Item | None) -> str | None:
    used = set(getattr(item, "fixturenames", ()))
    return next((name for name in SYSTEMS if name in used), None)


@contextlib.contextmanager
def _fixtures_limited(item: pytest.Item) -> Iterator[None]:
    """Fail what waits without an end in a fixture, or for a loop's tasks and threads at its end; the trace names it."""
    if any(map(item.get_closest_marker, BUILDS)):
        yield
        return
    limit = pytest_timeout.Settings(FIXTURES_S, "signal", func_only=False, disable_debugger_detection=False)
    item.ihook.pytest_timeout_set_timer(item=item, settings=limit)
    try:
        yield
    finally:
        item.ihook.pytest_timeout_cancel_timer(item=item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Limit the start of servers."""
    with _fixtures_limited(item):
        yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None]:
    """End a shared system with its last test, not with the session: it takes a tenth of a core while it idles."""
    with _fixtures_limited(item):
        yield
    name = _system_of(item)
    if isinstance(item, pytest.Function) and name is not None and name != _system_of(nextitem):
        for fixture in item._fixtureinfo.name2fixturedefs[name]:
            if fixture.scope == "session":
                fixture.finish(item._request)  # type: ignore[arg-type]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail what takes too long: everybody waits for the suite."""
    report = yield
    if report.when == "call" and report.passed and not item.path.is_relative_to(SYSTEM):
        limit = LIMIT_S * SLACK * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        if report.duration > limit and not any(map(item.get_closest_marker, BUILDS)):
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid} took {report.duration:.1f} s of {limit:.1f}: tests/conftest.py, LIMIT_S"
    return report


@pytest.fixture(scope="module", autouse=True)
def _collected() -> Iterator[None]:
    """Fail the last test of a file where the file has left a connection, a file or a task: else a later one would."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def _guard() -> Guard:
    return Guard()


@pytest.fixture(autouse=True)
def _no_server(request: pytest.FixtureRequest) -> Iterator[None]:
    """Under `-m unit`: fail what starts a process."""
    if request.config.option.markexpr != "unit":
        yield
        return
    guard: Guard = request.getfixturevalue("_guard")
    guard.on = True
    yield
    guard.on = False


@pytest.fixture(scope="session", autouse=True)
def _clean_environment() -> Iterator[None]:
    """Hide the developer's own settings and keys: with them, a test could ask a real model, and pay for it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("RUNWIRE_") or name.endswith("_API_KEY"):
                patch.delenv(name)
        yield


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data folder of a `runwire up` that all tests share."""
    data = tmp_path_factory.mktemp("up")
    with running_up(data):
        yield data


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A running server that all tests of this worker share.

    Who stops it must start it again; who leaves a stream must remove it.
    """
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def own_identified_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """The next one with the users of a deployment. Fails a test in which a user was denied anything."""
    with NatsServer(tmp_path_factory.mktemp("nats"), identities=True) as server:
        yield server
    assert server.violations() == []


@pytest.fixture
def own_nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A running server, empty and for this test alone: it may be killed, and what is left in it goes with it."""
    with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(scope="module")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The embedded S3 server, where the kind makes no difference, for the tests of one file."""
    with S3Server("rclone", tmp_path_factory.mktemp("rclone")) as found:
        yield found
