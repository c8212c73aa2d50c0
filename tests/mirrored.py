"""Tests mirror modules: `services/x/y.py` has `tests/x/test_y.py`. And the exceptions.

A test of a package counts for its modules: `test_answer_stream.py` for all of `answer_stream/`. What is not mirrored is
in a room that is tested as a whole, or is tested through another module; `tests/test_house.py` compares both lists with
what is there.
"""

import ast
from collections.abc import Iterator
from pathlib import Path, PurePath

from tests.support.checkout import parsed

#: Statements inside functions. A module with fewer has no logic of its own: it is tested where it is used.
MIN_STATEMENTS = 20

#: A room whose modules only mean something together -> what tests it, and how.
WHOLE_ROOMS = {
    "runwire/cli": ("tests/runwire/cli/test_app.py", "commands as a user runs them"),
    "runwire/local": ("tests/runwire/local/test_up.py", "`runwire up` with all its processes"),
    "runwire/serving": ("tests/runwire/serving/test_server.py", "served tools, called over NATS"),
    "services/artifact_store": ("tests/artifact_store/test_store.py", "requests over NATS, with real S3 servers"),
    "services/gateway": ("tests/gateway/runs/test_routes.py", "requests over HTTP, in rooms as the modules"),
    "services/shared/images": (
        "tests/gateway/artifacts/test_images_hostile.py",
        "images of callers, decoded in the worker process",
    ),
    "services/planner/effects": (
        "tests/planner/test_runs_answers.py",
        "whole runs over NATS: tests/planner/test_runs_*",
    ),
    "services/planner/strategies/chat": ("tests/planner/test_runs_chat.py", "whole runs over NATS"),
    "services/planner/strategies/planned": ("tests/planner/test_runs_planned.py", "whole runs over NATS"),
    "services/planner/strategies/react": ("tests/planner/replies/test_replies_properties.py", "decisions of the model"),
    "services/runtime": ("tests/runtime/test_service.py", "a service as a process"),
    "services/shared/artifacts": (
        "tests/artifact_store/test_store.py",
        "the client, beside a real store",
    ),
    "services/shared/runs/pages": (
        "tests/shared/runs/pages/test_registry.py",
        "what a deployment registers; runs on pages are in tests/planner/test_runs_pages.py",
    ),
    "services/tables": ("tests/tables/test_tools.py", "calls of the tools, on both databases"),
    "services/tool_runner": ("tests/tool_runner/test_handlers.py", "calls over NATS, with tools as processes"),
}

#: A module -> the test of the module through which it is used.
THROUGH = {
    "contracts/wire/subject.py": "tests/contracts/wire/test_subjects.py",
    "services/messaging/nats_link.py": "tests/messaging/test_login.py",
    "services/planner/models/litellm/model.py": "tests/planner/models/test_both_paths.py",
    "services/planner/run/ending/budgets.py": "tests/planner/run/test_advance.py",
    "services/planner/run/commands.py": "tests/planner/run/test_advance.py",
    "services/planner/run/state/fold.py": "tests/planner/run/test_advance.py",
    "services/planner/run/state/run.py": "tests/planner/run/test_opening.py",
    "services/planner/strategies/base.py": "tests/planner/conversation/test_rendering.py",
    "services/shared/sessions/proposals.py": "tests/planner/sessions/test_proposals.py",
    "services/shared/sessions/state.py": "tests/planner/sessions/tasks/test_reports.py",
    "services/shared/sessions/task_state.py": "tests/shared/sessions/test_task_fold.py",
}


def has_logic(text: str) -> bool:
    """Whether a module's functions hold so many statements that it needs a test."""
    functions = [node for node in ast.walk(parsed(text)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return (
        sum(isinstance(part, ast.stmt) for each in functions for line in each.body for part in ast.walk(line))
        >= MIN_STATEMENTS
    )


def is_mirrored(root: Path, module: PurePath) -> bool:
    """Whether a test file is at the path that mirrors a module or its package."""
    return any(
        any(place.parent.glob(f"{place.name}{ending}.py")) for place in places(root, module) for ending in ("", "_*")
    )


def places(root: Path, module: PurePath) -> Iterator[Path]:
    """Where a test of a module may be, without the ending: by its name, or by that of its package."""
    room = PurePath(*module.parts[1:-1]) if module.parts[0] == "services" else module.parent
    yield root / "tests" / room / f"test_{module.stem}"
    if len(room.parts) > 1:
        yield root / "tests" / room / f"test_{room.name}"
        yield root / "tests" / room.parent / f"test_{room.name}"
