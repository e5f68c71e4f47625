"""nftables over netlink: elements packed in bulk, structure as text for the `nft` tool.

Reading order: `elements`, `connection`.
"""
