"""What `make test` tries of what there is to try: a sample that is another one each day. `make chaos` tries all of it.

- `@pytest.mark.sample(n)` on a test with many cases: `make test` runs n of them, spread evenly, `make chaos` all. With
  `of="file"`, n of all cases of a file.
- `seeds(n)`: n seeds for a test to be parametrised with. `make test` counts on from the day, `make chaos` from a number
  that nobody has tried before.
- Properties try 40 examples, under `make unit` 20, under `make chaos` 1,000.

Every session prints where it began to count; `TEST_SEED=<number>` repeats it. `SHARE=2/6` runs the second sixth.
"""

import os
import random
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

SEED = "TEST_SEED"
SHARE = "SHARE"
SECONDS_OF_A_DAY = 86_400
KEPT = Path(__file__).resolve().parents[2] / "build" / "seeds"
"""Where the seeds of each `make chaos` are kept."""


def first_seed() -> int:
    """Where this session begins to count."""
    return int(os.environ[SEED])


def seeds(count: int) -> range:
    """Return seeds that this session tries."""
    return range(first_seed(), first_seed() + count)


def begin(config: pytest.Config) -> None:
    """Choose where this session begins to count, once for all its workers."""
    if SEED in os.environ:
        return
    if not tries_all(config):
        os.environ[SEED] = str(int(time.time()) // SECONDS_OF_A_DAY * 1_000)
        return
    os.environ[SEED] = str(random.SystemRandom().randrange(1 << 31) * 1_000)
    KEPT.parent.mkdir(exist_ok=True)
    with KEPT.open("a", encoding="utf-8") as kept:
        kept.write(f"{SEED}={first_seed()} {SHARE}={os.environ.get(SHARE, '1/1')}\n")


def tries_all(config: pytest.Config) -> bool:
    """Whether everything is tried, as by `make chaos`."""
    return "chaos" in config.option.markexpr.replace("not chaos", "")


def choose(config: pytest.Config, items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the items that this session runs, of those whose cases are sampled; or its share of all of them.

    Under `make chaos` sampled tests and properties count as chaos, whatever their marks. Elsewhere what is marked for
    it is left out, also where `-m` says nothing of it.
    """
    if not tries_all(config):
        return _sampled([item for item in items if not item.get_closest_marker("chaos")])
    for item in items:
        function = getattr(item, "obj", None)
        if item.get_closest_marker("sample") or getattr(function, "is_hypothesis_test", False):
            item.add_marker("chaos")
    part, _, parts = os.environ.get(SHARE, "1/1").partition("/")
    mine = sorted((item for item in items if item.get_closest_marker("chaos")), key=_position)
    kept = set(mine[int(part) - 1 :: int(parts)])
    return [item for item in items if item in kept]


def _position(item: pytest.Item) -> tuple[str, int, str, tuple[int, ...]]:
    """Where a case stands, in any session: shares with different seeds, and so in different orders, share out all."""
    case = getattr(item, "callspec", None)
    path, line, _ = item.location
    return path, line or 0, item.name.partition("[")[0], tuple(case.indices.values()) if case is not None else ()


def _sampled(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    cases: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if marker := item.get_closest_marker("sample"):
            is_of_file = marker.kwargs.get("of") == "file"
            cases[item.nodeid.partition("::" if is_of_file else "[")[0]].append(item)
    left_out: set[pytest.Item] = set()
    for of_one_test in cases.values():
        marker = of_one_test[0].get_closest_marker("sample")
        wanted = marker.args[0] if marker else 0
        ordered = sorted(of_one_test, key=lambda item: item.nodeid)
        step = max(1.0, len(ordered) / wanted)
        offset = first_seed() // 1_000 % max(1, round(step))
        chosen = {ordered[int(offset + number * step) % len(ordered)] for number in range(min(wanted, len(ordered)))}
        left_out |= set(ordered) - chosen
    return [item for item in items if item not in left_out]
