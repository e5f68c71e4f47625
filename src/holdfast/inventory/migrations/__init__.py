"""Schema migrations. Steps only add: versions N and N-1 run side by side (rule 8)."""
