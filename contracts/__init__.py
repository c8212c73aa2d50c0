"""The messages between the services. `schemas/` and `asyncapi.json` are generated from them for other languages."""
