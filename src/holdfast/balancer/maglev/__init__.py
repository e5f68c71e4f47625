"""Maglev lookup tables: which backend owns which bucket, and how many a change moves."""
