"""The type of agent that Neutron shows for hosts; as networking-calico calls it, so that an upgrade keeps its rows."""

AGENT_TYPE = "Calico per-host agent (felix)"
