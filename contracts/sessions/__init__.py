"""Sessions, their background tasks and schedules: records, messages and views."""
