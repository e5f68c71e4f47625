"""Sections of the configuration, one file each."""
