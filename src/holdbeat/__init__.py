"""Holdbeat: a job scheduler that never lets go of a job."""
