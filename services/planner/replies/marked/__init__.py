"""Marked responses: text in which a model marks suggestions and proposals, which are taken out of what is shown."""
