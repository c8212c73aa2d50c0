"""The strategies of runs, each a folder or module on one base."""
