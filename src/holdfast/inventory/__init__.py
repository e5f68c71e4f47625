"""The source of truth: which hosts, networks, endpoints and frontends there should be, and how that is changed.

Read in this order: `api` (what the rest of Holdfast sees), `claims` (which addresses an object occupies), `schema`,
`engine` (connections and their time-outs), `fence`, `sql` (the leader's side), `changing`, `rules` (what is refused),
`edit` (the operator's side), `wake`.
"""
