"""The rules of a run, pure: its state, folded from the log, and the next command.

Nothing here awaits or reads a clock.
"""
