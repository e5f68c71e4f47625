"""Kinds of Holdfast itself: identity, leader, servers, intents, allowances."""
