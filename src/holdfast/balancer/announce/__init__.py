"""VIP announcement: `policy` decides, `gates` holds what is too early, `target` reads and writes addresses."""
