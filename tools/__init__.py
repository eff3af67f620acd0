"""Small programs that keep the repository honest."""
