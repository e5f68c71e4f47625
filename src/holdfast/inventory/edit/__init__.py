"""Edits of the inventory by operators, and the rules that refuse some of them."""
