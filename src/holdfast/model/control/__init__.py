"""Kinds that control Holdfast itself: leader, intents, allowances, servers."""
