"""Watch that loses no event, or delivers a new snapshot."""
