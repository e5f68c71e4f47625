"""The source of truth: which hosts, endpoints and subnets there should be, and everything about changing them.

Read in this order: `api` (what the rest of Holdfast sees), `claims` (which addresses an object occupies), `schema`,
`engine` (connections and their time-outs), `fence`, `sql` (the leader's side), `edit` (the operator's side), `wake`.
"""
