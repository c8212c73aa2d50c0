"""The strategies of the planner: each turns model replies into the same decisions."""
