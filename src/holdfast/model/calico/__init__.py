"""Calico v3 resources, as far as Holdfast reads or writes them."""
