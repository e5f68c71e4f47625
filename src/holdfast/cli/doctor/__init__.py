"""`holdfast doctor`: checks what Holdfast depends on."""
