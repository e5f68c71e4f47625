"""OpenStack: Neutron as the inventory, with Calico's data model in the store."""
