"""The protocols over which clients ask and follow runs.

Each is a folder: `routes` is its HTTP part, which turns its requests into ours; a pure function frames our events
(`events.stream.frames`). A protocol starts runs with `runs.accept` and follows them with a follower. No other room
knows of it, but `runs.routes` answers with streams of `events`. A new one is a folder, and a router in `app.PROTOCOLS`.
"""
