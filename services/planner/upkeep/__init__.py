"""What planners do beside handling messages: sweeps, deletions, schedules."""
