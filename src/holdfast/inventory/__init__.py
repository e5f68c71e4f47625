"""The source of truth: which hosts, networks, endpoints and frontends there should be, and how that is changed.

Read in this order: `api` (what the rest of Holdfast sees), `kinds` (which addresses an object occupies), `sql.schema`,
`sql.engine` (connections and their time-outs), `sql.fence`, `sql.objects` (the leader's side), `changes`, `edit.rules`
(what is refused), `edit.editor` (the operator's side), `sql.wake`.
"""
