"""Operator intents of every daemon: pauses, allows and their withdrawal.

Read `store` (the protocol, and intents in a file), `etcd` (intents of the fleet and of leaders, with `memory` for a
store that lost them), `applied` (their effect on the gates) and `commands`.
"""
