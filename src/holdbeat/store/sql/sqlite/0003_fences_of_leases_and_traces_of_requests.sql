-- Slot numbers are given out under the lock of their limit, so no index need look for them.
DROP INDEX leases_number;

-- W3C traceparent of a direct request: the span of its run is below it.
ALTER TABLE direct_reservations ADD COLUMN trace TEXT;
