"""Fenced writes: accepted only while the writer's term leads."""
