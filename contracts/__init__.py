"""The words that the services say to each other; `schemas/` and `asyncapi.json` are generated from it for every other language."""
