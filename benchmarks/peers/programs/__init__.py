"""One program for each contestant: an app with the same handler, a client that submits, and the worker if the
contestant has no command for that. Each runs under the interpreter of its contestant's own environment, so these
modules import nothing but that contestant and the standard library."""
