"""The schema's history, step by step. Steps only add: versions N and N-1 run side by side (rule 8)."""
