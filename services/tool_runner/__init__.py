"""Takes durable calls, calls tool services, writes one outcome per call, and maintains the tool catalogue."""
