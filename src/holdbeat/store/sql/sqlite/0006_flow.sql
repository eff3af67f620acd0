-- Weights, affinity and preemption of jobs; throttles, starvation and turns by weight of limits.

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

-- numbers: those of its further slots, if it weighs more than one. preempted_for: the job or direct request for which
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

-- Before when nothing of the partition starts under this limit, because who was called asked for that; seconds since
-- 1970. type: only jobs of this type; empty for all that the limit covers.
CREATE TABLE throttles (
    key TEXT NOT NULL,
    type TEXT NOT NULL,
    partition TEXT NOT NULL,
    until REAL NOT NULL,
    PRIMARY KEY (key, type, partition)
) WITHOUT ROWID;

-- Limits whose slots all go to direct requests while jobs wait.
CREATE TABLE starvations (
    key TEXT PRIMARY KEY NOT NULL,
    limit_name TEXT NOT NULL,
    resource TEXT NOT NULL,
    since TEXT NOT NULL
);

-- How many direct requests in a row got a slot of a limit; kept only with direct_burst.
CREATE TABLE direct_streaks (
    key TEXT PRIMARY KEY NOT NULL,
    length INTEGER NOT NULL
);

-- How often a worker went on with the affinity that it ran last, and how often it changed to another.
CREATE TABLE affinity_counts (
    resource TEXT PRIMARY KEY NOT NULL,
    kept INTEGER NOT NULL,
    switches INTEGER NOT NULL
);

-- A run may end throttled. SQLite cannot change a CHECK, so the table is made anew.
CREATE TABLE job_runs_new (
    id TEXT PRIMARY KEY NOT NULL,
    job_id TEXT NOT NULL UNIQUE,
    type TEXT NOT NULL DEFAULT '',
    resource TEXT NOT NULL DEFAULT 'default',
    template_id TEXT,
    params_snapshot TEXT NOT NULL DEFAULT '{}',
    worker_id TEXT,
    slot INTEGER,
    fence INTEGER NOT NULL DEFAULT 0,
    started_at TEXT NOT NULL,
    finished_at TEXT,
    status TEXT CHECK (status IN ('COMPLETED', 'FAILED', 'SKIPPED', 'CONTINUED')),
    exit_code INTEGER,
    error TEXT,
    error_kind TEXT CHECK (error_kind IN
        ('error', 'exit', 'timeout', 'crash', 'lost', 'interrupted', 'cancelled', 'rejected', 'throttled')),
    artifacts TEXT NOT NULL DEFAULT '{}'
);
INSERT INTO job_runs_new SELECT id, job_id, type, resource, template_id, params_snapshot, worker_id, slot, fence,
    started_at, finished_at, status, exit_code, error, error_kind, artifacts FROM job_runs;
DROP TABLE job_runs;
ALTER TABLE job_runs_new RENAME TO job_runs;
CREATE INDEX job_runs_finished ON job_runs (type, finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX job_runs_outcome ON job_runs (status, id) WHERE status IN ('FAILED', 'SKIPPED');
CREATE TRIGGER job_runs_start_is_frozen
    BEFORE UPDATE OF id, job_id, type, resource, template_id, params_snapshot, worker_id, slot, fence, started_at
    ON job_runs
BEGIN
    SELECT RAISE(ABORT, 'job_runs_start_is_frozen: the columns that a run starts with cannot change');
END;
CREATE TRIGGER job_runs_end_is_written_once
    BEFORE UPDATE OF finished_at, status, exit_code, error, error_kind, artifacts ON job_runs
    WHEN old.status IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'job_runs_end_is_written_once: a run that has ended cannot change');
END;
