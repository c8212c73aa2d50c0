"""Sessions, with their background tasks, proposals and schedules: records, messages and views."""
