"""The commands, one module for each noun; `runwire.cli.app` lists them."""
