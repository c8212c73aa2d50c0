"""The rules of a run, pure: its state folded from the log, and the one next thing to do. Nothing here awaits or knows a clock."""
