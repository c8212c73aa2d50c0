"""Attacks by tools and listeners with a credential, and by a service that was taken over: none succeeds."""

import pytest

from tests.identities.attacks import ATTACKS, Attack
from tests.identities.scene import Scene


def _name(attack: Attack) -> str:
    return getattr(attack, "__name__", "?")


@pytest.mark.parametrize("attack", ATTACKS, ids=_name)
async def test_an_attack_fails(guarded: Scene, attack: Attack) -> None:
    """Under the identities of a deployment."""
    assert not await attack(guarded)


@pytest.mark.parametrize("attack", ATTACKS, ids=_name)
async def test_the_attack_succeeds_without_identities(unguarded: Scene, attack: Attack) -> None:
    """So the attack is one."""
    assert await attack(unguarded)
