"""Netlink, packed: thousands of equal requests per send, and every error matched to its object.

Reading order: `wire`, `columns`, `socket`, then one module per kind of kernel object.
"""
