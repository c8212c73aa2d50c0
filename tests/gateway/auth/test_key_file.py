"""The file of keys is followed: what is valid counts within about a second, what is not changes nothing."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from services.gateway.auth import guard
from services.gateway.auth.guard import KeyFile
from services.gateway.auth.key_lines import new_key
from services.gateway.errors import StartRefused
from tests.support.gateways import Served, bearer, serving
from tests.support.nats_server import NatsServer
from tests.support.waiting import wait_until

ANN, ANNS_LINE = new_key("ann")
BOB, BOBS_LINE = new_key("bob")


def replace(path: Path, text: str) -> None:
    """Write a file beside it, and move that into its place."""
    new = path.with_name("new")
    new.write_text(text)
    if path.is_dir():
        path.rmdir()
    new.replace(path)


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(f"{ANNS_LINE}\n")
    return path


@pytest.fixture
async def served(shared_nats: NatsServer, file: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Served]:
    """A gateway that follows the file, more often than usual."""
    monkeypatch.setattr(guard, "CHECK_INTERVAL_S", 0.02)
    async with serving(shared_nats.url, api_keys_file=file, host="127.0.0.1") as gateway:
        yield gateway


async def status(served: Served, key: str) -> int:
    return (await served.http.get("/v1/runs", headers=bearer(key))).status_code


async def problems(served: Served) -> list[str]:
    found: list[str] = (await served.http.get("/readyz")).json()["problems"]
    return found


async def becomes_unready(served: Served, reason: str) -> str:
    """Wait until it is not ready for this one reason, and return it whole."""

    async def is_unready() -> bool:
        return reason in "".join(await problems(served))

    await wait_until(is_unready, what=f"/readyz says: {reason}")
    (problem,) = await problems(served)
    return problem


async def until_status(served: Served, key: str, expected: int) -> None:
    async def has_status() -> bool:
        return await status(served, key) == expected

    await wait_until(has_status, what=f"a key gets {expected}")


async def test_keys_come_and_go_without_a_restart(served: Served, file: Path) -> None:
    """A new line admits, a removed one refuses, a changed one has other rights at once."""
    assert (await status(served, ANN), await status(served, BOB)) == (200, 401)
    replace(file, f"{ANNS_LINE} rights=\n{BOBS_LINE}\n")
    await until_status(served, BOB, 200)
    asked = await served.http.post("/v1/runs", json={"query": "x"}, headers=bearer(ANN))
    assert (asked.status_code, asked.json()["code"]) == (403, "right_missing")
    replace(file, f"{BOBS_LINE}\n")
    await until_status(served, ANN, 401)
    assert await status(served, BOB) == 200


@pytest.mark.parametrize(
    "line",
    ["", f"{ANNS_LINE} rights=run", f"{new_key('ann')[1]} name={ANNS_LINE.split()[1][:12]}"],
    ids=["removed", "changed", "another of its name"],
)
async def test_the_streams_of_a_key_end_with_it(served: Served, file: Path, line: str) -> None:
    """When it is removed, loses a right, or gives its name to another key. The streams of other keys go on."""
    replace(file, f"{ANNS_LINE}\n{BOBS_LINE}\n")
    await until_status(served, BOB, 200)
    run = (await served.http.post("/v1/runs", json={"query": "q"}, headers=bearer(ANN))).json()["run_id"]
    bobs = (await served.http.post("/v1/runs", json={"query": "q"}, headers=bearer(BOB))).json()["run_id"]
    session = f"/v1/sessions/run-{run}/events"
    ticketed = (await served.http.post(f"/v1/runs/{run}/ticket", headers=bearer(ANN))).json()["events_url"]
    asking = [
        asyncio.create_task(served.http.request(method, path, headers=bearer(key), json=body))
        for method, path, key, body in (
            ("GET", f"/v1/runs/{run}/events", ANN, None),
            ("GET", session, ANN, None),
            ("GET", ticketed, "x", None),
            ("POST", "/chat", ANN, {"query": "q"}),
            ("GET", f"/v1/runs/{bobs}/events", BOB, None),
        )
    ]
    await wait_until(lambda: len(served.parts.streams) == 5, what="all wait")
    replace(file, f"{line}\n{BOBS_LINE}\n")
    *streams, chat = await asyncio.gather(*asking[:4])
    assert all(each.text.endswith(": key_gone\n\n") for each in streams)
    assert chat.status_code == 401
    if "rights" not in line:  # A changed key may open them again, and its tickets too.
        assert (await served.http.get(ticketed)).status_code == 401
    assert not asking[4].done()
    asking[4].cancel()


def overwritten(by: Callable[[Path], object]) -> Callable[[Path], object]:
    """What puts something else than a file in its place."""

    def put(path: Path) -> None:
        path.unlink()
        by(path)

    return put


BROKEN: list[tuple[Callable[[Path], object], str]] = [
    (Path.unlink, "cannot be read: No such file"),
    (lambda path: path.write_text(""), "holds no key"),
    (lambda path: path.write_text(f"# {ANNS_LINE}\n"), "holds no key"),
    (lambda path: path.write_text(f"{BOBS_LINE}\n{ANNS_LINE} rights=everything\n"), "line 2, rights: expected"),
    (overwritten(Path.mkdir), "cannot be read: Is a directory"),  # As a mount without its file makes.
    (overwritten(os.mkfifo), "is not a regular file"),  # Opening it would wait for ever.
    (lambda path: path.write_bytes(b"\xff\xfe" + BOBS_LINE.encode("utf-16-le")), "is not UTF-8"),
    (lambda path: os.truncate(path, guard.MAX_FILE_BYTES + 1), "has more than"),
    (overwritten(lambda path: path.symlink_to(path)), "cannot be read: Too many levels"),
    (lambda path: path.write_text(f"{BOBS_LINE}\n{ANNS_LINE[:40]}"), "line 2: the second column"),  # Half written.
]


async def test_a_broken_file_keeps_the_keys_and_fails_readiness(served: Served, file: Path) -> None:
    """No key is lost, none is gained, and nobody without a key is admitted. A valid file ends it."""

    async def is_ready() -> bool:
        return not await problems(served)

    for broken, reason in BROKEN:
        broken(file)
        problem = await becomes_unready(served, reason)
        assert problem.startswith("api_keys: RUNWIRE_API_KEYS_FILE")
        assert ANNS_LINE.split()[1][:12] not in problem
        assert (await status(served, ANN), await status(served, BOB)) == (200, 401)
        assert (await served.http.get("/v1/runs")).status_code == 401
        replace(file, f"{ANNS_LINE}\n")
        await wait_until(is_ready, what="the gateway is ready again")
    replace(file, f"{BOBS_LINE}\n")
    await until_status(served, ANN, 401)
    assert await status(served, BOB) == 200


async def test_a_file_behind_a_link_is_followed(
    shared_nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes swaps a folder under a link: `keys` -> `..data/keys`, and `..data` -> a folder of each version."""
    monkeypatch.setattr(guard, "CHECK_INTERVAL_S", 0.02)
    for name, line in (("one", ANNS_LINE), ("two", BOBS_LINE)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "keys").write_text(line)
        os.utime(tmp_path / name / "keys", (1, 1))
    data, link = tmp_path / "..data", tmp_path / "keys"
    data.symlink_to("one")
    link.symlink_to("..data/keys")
    async with serving(shared_nats.url, api_keys_file=link) as served:
        assert (await status(served, ANN), await status(served, BOB)) == (200, 401)
        (tmp_path / "..new").symlink_to("two")
        (tmp_path / "..new").replace(data)
        await until_status(served, BOB, 200)
        assert await status(served, ANN) == 401


def test_a_change_that_leaves_time_and_size_is_seen(file: Path) -> None:
    """As after an unpacked archive, or two writes within one tick of the file system's clock."""
    keys = KeyFile("", file)
    os.utime(file, (1, 1))
    keys.check(file)
    file.write_text(f"{BOBS_LINE}\n")
    os.utime(file, (1, 1))
    keys.check(file)
    assert keys.current.find(ANN) is None
    assert keys.current.find(BOB) is not None


def test_keys_of_the_setting_stay_beside_those_of_the_file(file: Path) -> None:
    """And one that stands in both is refused, since its rights would be a matter of order."""
    keys = KeyFile(BOBS_LINE, file)
    file.write_text(f"{BOBS_LINE} rights=operate\n")
    keys.check(file)
    assert "stands in RUNWIRE_API_KEYS too" in (keys.problem() or "")
    assert keys.current.find(ANN) is not None
    replace(file, f"bob {'1' * 64} name=ci")
    with pytest.raises(StartRefused, match="stands in RUNWIRE_API_KEYS too"):
        KeyFile(f"bob {'0' * 64} name=ci", file)
