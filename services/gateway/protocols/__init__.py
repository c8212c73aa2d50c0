"""The protocols over which clients ask and follow runs.

Each is a folder: `routes` is its HTTP part, and turns requests of its own into ours; a pure function makes its frames
of our events (`events.stream.frames`). A protocol starts runs with `runs.accept` and follows them with a follower; no
other room knows of it. To add one: its folder, and its router in `gateway.app.PROTOCOLS`.
"""
