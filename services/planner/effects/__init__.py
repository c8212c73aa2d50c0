"""What the rules ask for, carried out: model calls, chunks, calls of tools, timers, the index."""
