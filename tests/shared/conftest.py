"""The same connected bus as in the tests of messaging."""

from tests.messaging.conftest import bus

__all__ = ["bus"]
