"""How every daemon runs: supervisor and workers, board and pulse, the reconciler loop, decision log, control socket.

Start with `supervisor` (which `pulse` and `care` think for), then `worker`, then `reconciler`: the one loop that makes
every write.
"""
