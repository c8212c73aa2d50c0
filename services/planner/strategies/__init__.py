"""The dialects of the planner: each turns what a model says into the same actions and events."""
