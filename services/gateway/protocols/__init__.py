"""The protocols over which clients ask and follow runs.

Each is a folder: `inputs` turn its requests into ours (none where it has no requests of its own), `encoder` is a pure
function from our events to its frames, `routes` is its HTTP part. A protocol starts runs with `runs.accept` and follows
them with a follower; no other room knows of it. To add one: its folder, and its router in `gateway.app.PROTOCOLS`.
"""
