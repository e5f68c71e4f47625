"""Schema: documented fields and the scalar types they hold."""
