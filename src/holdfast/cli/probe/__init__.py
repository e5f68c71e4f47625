"""`holdfast probe`: probes virtual addresses as a client would, and shows the results live."""
