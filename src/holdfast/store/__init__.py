"""etcd as the source of desired state: client, watches, mirrors, fenced writes, identity.

Read `api` first: the types and the `Store` protocol that everything else is written against. `client` implements it on
`transport` (calls) and `watch` (streams); `mirror`, `fenced`, `lease` and `identity` use the protocol alone and also
run on `holdfast.testing.FakeStore`. `embedded` starts an etcd for a first fleet, the lab and the tests.
"""
