"""Netlink, packed: thousands of equal requests per send, and every error matched to the object that it is about."""
