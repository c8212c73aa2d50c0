"""The streams, consumers and buckets: their settings, who creates them, whether they store, and the clock of NATS."""
