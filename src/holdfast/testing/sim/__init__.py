"""Simulation: shipped workers on virtual time, ordered by a seed."""
