"""Twinlog: a RocketMQ-compatible name server, broker, replica and client."""

__version__ = "0.2.0"
