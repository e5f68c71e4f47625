"""`holdfast explain`: one module per kind of object."""
