"""The planner: receives the messages of runs, folds their logs, calls models, appends facts, dispatches tool calls."""
