"""The installed command, in real processes, on real stores."""
