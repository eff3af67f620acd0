"""Jobs that wait for the end of others: how they are linked, and what an end means to them."""
