"""`holdfast lab`: `command` starts a demo fleet and breaks it, `screen` shows it on a terminal, `down` stops it."""
