"""Marked responses: text in which a model marks suggestions and proposals, which are taken out of what is shown.

No strategy reads them yet: tests, vectors and benchmarks are the only callers.
"""
