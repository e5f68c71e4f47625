"""Desired state of each VIP: `state` combines services, health and intents; the others decide."""
