"""The dashboard: pages rendered here, kept fresh in the browser by the stream of events."""
