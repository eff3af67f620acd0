"""The PostgreSQL engine: pooled connections, LISTEN and NOTIFY, the database's own clock."""
