"""The control plane: one leader among any number of servers, and the work that only a leader does.

`election.machine` decides, `election.elector` does it; `election.leadership` is how the other workers ask whether they
may write.
"""
