"""The connection of a service to NATS as its parts use it: requests and subscriptions, reads, writes, and the clock."""

from services.messaging.clock import ServerClock
from services.messaging.reads import Reads
from services.messaging.writes import Writes
from services.runtime.settings import BusSettings


class Bus(Reads, Writes):
    """All that a service does with NATS."""

    def __init__(self, name: str, settings: BusSettings) -> None:
        super().__init__(name, settings)
        self.clock = ServerClock(self)
