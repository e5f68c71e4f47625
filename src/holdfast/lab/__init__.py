"""A fleet on one machine, and how to break it."""
