"""One module per resource; each has its `routes`."""
