"""The process that makes the streams of a deployment. It is a folder so that `python -m` runs it by this name."""
