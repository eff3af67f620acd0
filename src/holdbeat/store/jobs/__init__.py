"""Changes of jobs that exist: their runs end, people cancel, edit and retry them."""
