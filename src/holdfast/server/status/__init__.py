"""Status workers: reports of agents into the inventory. Read `term`, `source`, `target`, then `rules`."""
