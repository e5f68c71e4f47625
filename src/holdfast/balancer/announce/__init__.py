"""VIP announcement: `policy` decides, `target` reads and writes addresses, `worker` runs it."""
