"""`holdfast explain`: desired and actual state of one object, and what is between them. `command` is the entry."""
