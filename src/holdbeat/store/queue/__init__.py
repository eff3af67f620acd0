"""What people and programs do to Jobs that wait: submit, edit, move, pause, cancel, retry."""
