"""Images of callers and tools: decoded, checked and cleaned in a process of its own."""
