"""The words that the services say to each other; `contracts/schemas/` is generated from it for every other language."""
