"""How every daemon runs: supervisor and workers, board and pulse, the reconciler loop, decision log, control socket.

Start with `daemon.supervisor` (which `daemon.pulse` and `daemon.restart` think for), then `daemon.worker`, then
`reconciler.loop`: the one loop that makes every write.
"""
