"""VPP dataplane: VIPs and application servers of VPP's `lb` plugin, over its binary API.

VPP is a weight plane: it builds its own table from weights. `rules` says what it cannot do, and refuses what would
crash it; `messages` translates between our objects and its API; `memory` keeps what it does not give back;
`connection` speaks to it; `dataplane` puts these together.
"""
