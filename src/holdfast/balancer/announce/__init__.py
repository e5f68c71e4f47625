"""VIP announcement: `policy` decides, `target` reads and writes addresses, `worker` runs it.

`vip_gate` is the gate of the VIP reconciler that withdraws an address before its VIP is deleted.
"""
