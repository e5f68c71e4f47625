"""`holdfast probe`: probes virtual addresses from outside, live."""
