"""Scenes of `holdfast lab break`, one module per subject. Read `stage` (the tools) first; `registry` lists all."""
