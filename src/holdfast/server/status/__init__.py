"""Status workers: reports into the inventory. Read `term`, `source`, `target`, then the rules."""
