"""One call of a tool: its state machine, its history in the streams, and what its run shows of it."""
