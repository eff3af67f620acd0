"""Measurements of Holdbeat, each beside what the database alone can do on the same machine in the same minute."""
