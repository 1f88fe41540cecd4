"""Proof that replicas equal their masters, or the name of every record and setting that differs."""
