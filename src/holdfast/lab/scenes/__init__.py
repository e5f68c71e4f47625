"""Scenes of `holdfast lab break`, one module per subject, on a common `stage`."""
