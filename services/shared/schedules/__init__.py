"""The times of schedules, which the gateway shows and the planner fires at."""
