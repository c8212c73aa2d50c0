"""NATS: one connection per service, and the ways to read and write streams over it. Knows subjects and streams, not runs or tools."""
