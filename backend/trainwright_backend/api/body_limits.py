"""Largest bodies of requests, in bytes: ``max_body_size`` of routers and routes."""

STANDARD = 1 << 20
"""The default for all routes."""

AGENT = 32 << 20
"""For routes that receive a run's output from agents: one line of its events may have 16 MiB."""

UNLIMITED = 1 << 62
"""For routes that never keep an entire body in memory."""
