"""Whole jobs on Spark: each a function that takes a session and a frozen description of what to do."""
