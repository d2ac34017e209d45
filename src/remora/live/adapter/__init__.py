"""The Ray body of the port: reports, tables, feeds, the key-value store, holds."""
