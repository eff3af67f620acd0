"""The pure part of Holdbeat: what is true and what follows, without I/O and without a clock of its own."""
