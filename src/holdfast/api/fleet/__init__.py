"""The fleet as the reports in etcd show it: `cells` decides the state of a host, `view` follows the store."""
