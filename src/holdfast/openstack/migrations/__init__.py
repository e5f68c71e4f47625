"""Holdfast's own branch of Neutron's migrations: neutron-db-manage --subproject holdfast upgrade heads."""
