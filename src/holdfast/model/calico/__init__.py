"""Calico v3 resources that Holdfast reads or writes."""
