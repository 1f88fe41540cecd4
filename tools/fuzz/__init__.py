"""Mutated bytes against Twinlog, for as long as you like: `python -m tools.fuzz --seconds 60`."""
