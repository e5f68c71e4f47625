"""Guard: an nftables table of the agent's own that drops packets with a wrong source.

Reading order: `ruleset` (what it drops), `sets` (where objects are), `guard` (reads and writes them), `events`.
"""
