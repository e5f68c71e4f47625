"""The source of truth: hosts, networks, endpoints and frontends as they should be, and edits of them.

Read in this order: `api` (what the rest of Holdfast sees), `kinds` (names and addresses of objects), `changes`
(requests and edits as values), `sql.schema`, `sql.engine` (connections and timeouts), `sql.fence`, `sql.objects` (the
leader's side), `edit.rules` (what is refused), `edit.editor` (the operator's side), `sql.wake`.
"""
