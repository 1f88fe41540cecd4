"""Lag of consumer groups and of replicas over time, as a table and a plot."""
