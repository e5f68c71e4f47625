"""Operator intents for the leader's workers, stored in etcd. Read `store`, then `pause`."""
