"""Check and clean images that come from outside, each in a process of its own. Used by the services that take images in."""
