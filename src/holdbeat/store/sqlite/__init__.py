"""The SQLite engine: one writer thread with group commit, readers beside it, file locks between processes."""
