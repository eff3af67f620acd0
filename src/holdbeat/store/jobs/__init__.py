"""What happens to jobs that exist: their runs end, people cancel, edit and retry them."""
