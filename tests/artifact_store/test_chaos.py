"""For a minute instances of the store, the S3 server and NATS are killed and frozen, while artifacts come and go."""

import asyncio
import hashlib
import os
import random
import secrets
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from services.shared.artifacts.errors import ArtifactFailed, ArtifactNotFound
from tests.artifact_store.test_losses import Deployment, deployed
from tests.support.nats_server import NatsServer
from tests.support.s3_servers import S3Server, kinds

MIB = 1 << 20
SIZES = (0, 100, 40_000, 300_000, MIB, 3 * MIB, 9 * MIB)
BLOWS_S = 60


def digest_of(body: bytes) -> str:
    """What is compared and shown instead of megabytes."""
    return f"{len(body)} bytes {hashlib.sha256(body).hexdigest()[:12]}"


@dataclass
class Diary:
    """What was done and what came of it, in order: the message of a failure."""

    seed: int
    began: float = field(default_factory=time.monotonic)
    lines: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Broken promises; there must be none."""

    def note(self, text: str) -> None:
        """Tell what happened."""
        self.lines.append(f"{time.monotonic() - self.began:7.2f} {text}")

    def accuse(self, text: str) -> None:
        """Tell what should never have happened."""
        self.note(f"WRONG: {text}")
        self.wrong.append(text)

    def judge(self) -> None:
        """Fail with everything if something was wrong."""
        if self.wrong:
            pytest.fail(
                "\n".join([f"CHAOS_SEED={self.seed}", *self.wrong, "--- what happened", *self.lines]), pytrace=False
            )


class Worker:
    """Puts, reads and deletes; knows what must be there, what must not, and what nobody can tell."""

    def __init__(self, deployment: Deployment, diary: Diary, number: int) -> None:
        self._there = deployment
        self._diary = diary
        self._chance = random.Random(diary.seed + number)
        self._bodies = [self._chance.randbytes(size) for size in SIZES]
        self.held: dict[str, str] = {}
        self.gone: set[str] = set()

    async def work(self, until: float) -> None:
        """Go on until it is time."""
        while time.monotonic() < until:
            body = (
                self._chance.choice(self._bodies)
                if self._chance.random() < 0.3
                else secrets.token_bytes(self._chance.choice(SIZES))
            )
            try:
                ref = await self._there.client.put(self._there.tenant, body, session="s")
            except ArtifactFailed as failure:
                self._diary.accuse(f"a put of {digest_of(body)} failed: {failure!r}")
                continue
            self._diary.note(f"put {ref.artifact_id} {digest_of(body)}")
            self.held[ref.artifact_id] = digest_of(body)
            await look(self._there, self._diary, self._chance.choice(list(self.held)), self.held)
            if self._chance.random() < 0.4:
                await self._delete(self._chance.choice(list(self.held)))

    async def _delete(self, artifact: str) -> None:
        del self.held[artifact]
        self._diary.note(f"delete {artifact}")
        try:
            await self._there.client.delete(self._there.tenant, artifact)
        except ArtifactNotFound:
            pass  # It was deleted, and the answer was lost.
        except ArtifactFailed as failure:
            self._diary.accuse(f"a deletion of {artifact} failed: {failure!r}")
            return
        self.gone.add(artifact)


async def look(deployment: Deployment, diary: Diary, artifact: str, held: dict[str, str]) -> None:
    """Read an artifact as a whole; one of unknown contents need only be readable, which its digest vouches for."""
    try:
        found = digest_of((await deployment.client.read(deployment.tenant, artifact, limit=20 * MIB))[1])
    except ArtifactFailed as failure:
        diary.accuse(f"{artifact}, {held.get(artifact)}, cannot be read: {failure!r}")
    else:
        if found != held.get(artifact, found):
            diary.accuse(f"{artifact}, {held[artifact]}, is now {found}")


@pytest.mark.chaos
@pytest.mark.system
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", kinds())
async def test_nothing_is_lost_and_nothing_is_half(own_nats_server: NatsServer, tmp_path: Path, kind: str) -> None:
    """Every reference that was returned or listed can be read in full, all the time and in the end."""
    diary = Diary(int(os.environ.get("CHAOS_SEED", "0")) or secrets.randbelow(1 << 30))
    env = {"RUNWIRE_ARTIFACT_GRACE_S": "3", "RUNWIRE_ARTIFACT_SWEEP_S": "1"}
    with S3Server(kind, tmp_path / "s3") as s3:
        async with deployed(own_nats_server, s3, tmp_path / "logs", stores=2, patience_s=90, env=env) as deployment:
            until = time.monotonic() + BLOWS_S
            workers = [Worker(deployment, diary, number) for number in range(4)]
            working = asyncio.gather(*(worker.work(until) for worker in workers))
            await _strike(deployment, diary, until)
            await working
            held = {artifact: digest for worker in workers for artifact, digest in worker.held.items()}
            listed = await _listed(deployment)
            for artifact in sorted(held.keys() | listed):
                await look(deployment, diary, artifact, held)
            for artifact in held.keys() - listed:
                diary.accuse(f"{artifact} is on no list")
            for artifact in listed & {artifact for worker in workers for artifact in worker.gone}:
                diary.accuse(f"{artifact} was deleted and is listed")
            sys.stdout.write(
                f"CHAOS_SEED={diary.seed}: {len(held)} held, {len(listed)} listed, {len(diary.lines)} events\n"
            )
    diary.judge()
    assert len(held) > 20, "hardly anything was done"


async def _listed(deployment: Deployment) -> set[str]:
    found: set[str] = set()
    cursor: int | None = 0
    while cursor is not None:
        page = await deployment.client.list(deployment.tenant, session="s", limit=500, cursor=cursor)
        found |= {each.ref.artifact_id for each in page.artifacts}
        cursor = page.next_cursor
    return found


async def _strike(deployment: Deployment, diary: Diary, until: float) -> None:
    """Strike until it is time, then bring everything back."""
    chance = random.Random(diary.seed)
    while time.monotonic() < until:
        await asyncio.sleep(chance.uniform(0.3, 3))
        await _blow(deployment, diary, chance)
    deployment.s3.start()
    deployment.stack.mend()


async def _blow(deployment: Deployment, diary: Diary, chance: random.Random) -> None:
    """Kill or freeze something, and bring it back a moment later."""
    name = f"artifact_store-{chance.choice((1, 2))}"
    blow = chance.choice(("kill store", "kill store", "freeze store", "kill s3", "freeze s3", "kill nats"))
    diary.note(f"{blow} {name if blow.endswith('store') else ''}")
    match blow:
        case "kill store":
            deployment.stack.kill(name)
            await asyncio.sleep(chance.uniform(0, 1))
            deployment.stack.spawn(name)
        case "freeze store":
            deployment.stack.freeze(name)
            await asyncio.sleep(chance.uniform(0.5, 6))
            deployment.stack.thaw(name)
        case "kill s3":
            deployment.s3.kill()
            await asyncio.sleep(chance.uniform(0, 2))
            deployment.s3.start()
        case "freeze s3":
            deployment.s3.freeze()
            await asyncio.sleep(chance.uniform(0.5, 3))
            deployment.s3.thaw()
        case _:
            deployment.nats.kill()
            await asyncio.sleep(chance.uniform(0, 1))
            deployment.nats.start()
