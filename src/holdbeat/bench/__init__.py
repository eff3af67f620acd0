"""`holdbeat bench`: the engine measured against the shortest honest SQL on the same disk, in the same run."""
