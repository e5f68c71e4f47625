"""A demo fleet on one machine (`fleet/`), and the scenes that break it (`scenes/`)."""
