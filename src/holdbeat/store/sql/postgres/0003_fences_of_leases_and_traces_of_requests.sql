-- A claim counts leases from the lowest fence that may be held: while a snapshot stays open, PostgreSQL keeps the rows of
-- all leases that were released since, and a count from the beginning reads them all.
CREATE UNIQUE INDEX leases_fence ON leases (fence);

-- Slot numbers are given out under the lock of their limit. Their unique index looked at every dead row with the number
-- of a new one.
DROP INDEX leases_number;

-- W3C traceparent of a direct request: the span of its run is below it.
ALTER TABLE direct_reservations ADD COLUMN trace text COLLATE "C";
