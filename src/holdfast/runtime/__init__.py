"""Runtime of every daemon: supervisor and workers, board and pulse, the reconcile loop, decision log, control socket.

Start with `daemon.supervisor` (for which `daemon.pulse` and `daemon.restart` decide), then `daemon.worker`, then
`reconciler.loop`, the one loop that makes every write.
"""
