"""What the log of a run says of it: how it stands, whether it waits, and how to follow it."""
