"""The whole fleet in one world: shipped supervisors, workers, jobs and etcd clients, under one seed."""
