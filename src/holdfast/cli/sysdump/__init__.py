"""`holdfast sysdump`: `command` collects what other commands print into one archive, `scrub` removes secrets."""
