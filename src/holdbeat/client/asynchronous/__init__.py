"""The client for programs with an event loop; the source of the blocking one."""
