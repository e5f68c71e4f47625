"""The configuration of vpp-maglev's maglevd, translated into ours. Pure: `keys` has the mapping, `translate` the entry.

Every key of it has a place in the mapping, or is reported with its line: nothing is left out in silence. What our own
configuration refuses is reported at the line of maglevd's file that it came from.
"""
