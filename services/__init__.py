"""The services. This file must exist: without it, a tool author's own `services` package would win the import."""
