-- Weights, affinity and preemption of jobs; turns by weight of limits.

-- weight: slots of its resource that it takes. affinity: what a worker keeps loaded for it. preemption: 1 if it may be
-- interrupted for others, 2 if others may be for it. put_first: somebody moved it to the top.
ALTER TABLE jobs ADD COLUMN weight INTEGER NOT NULL DEFAULT 1;
ALTER TABLE jobs ADD COLUMN affinity TEXT NOT NULL DEFAULT '';
ALTER TABLE jobs ADD COLUMN preemption INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN put_first INTEGER NOT NULL DEFAULT 0;
CREATE INDEX jobs_heavy ON jobs (resource, type) WHERE status = 'QUEUED' AND hold = 0 AND weight > 1;
CREATE INDEX jobs_affinity ON jobs (resource, type, effective_priority DESC, affinity, position, created_at, id)
    WHERE status = 'QUEUED' AND hold = 0 AND affinity <> '';
CREATE INDEX jobs_preempting ON jobs (priority DESC, position, created_at, id)
    WHERE status = 'QUEUED' AND hold = 0 AND preemption >= 2;

-- numbers: those of all its slots, if it weighs more than one. preempted_for: the job or direct request for which
-- its handler was told to end.
ALTER TABLE leases ADD COLUMN weight INTEGER NOT NULL DEFAULT 1;
ALTER TABLE leases ADD COLUMN numbers TEXT;
ALTER TABLE leases ADD COLUMN preempted_for TEXT;

ALTER TABLE direct_reservations ADD COLUMN weight INTEGER NOT NULL DEFAULT 1;
ALTER TABLE direct_reservations ADD COLUMN preempts INTEGER NOT NULL DEFAULT 0;

-- weights: an object of partitions and how many starts each has in its turn.
ALTER TABLE limits ADD COLUMN weights TEXT;
-- taken: how many starts the partition has had in its turn.
ALTER TABLE turns ADD COLUMN taken INTEGER NOT NULL DEFAULT 0;

-- How often a worker went on with the affinity that it ran last, and how often it changed to another.
CREATE TABLE affinity_counts (
    resource TEXT PRIMARY KEY NOT NULL,
    kept INTEGER NOT NULL,
    switches INTEGER NOT NULL
);
