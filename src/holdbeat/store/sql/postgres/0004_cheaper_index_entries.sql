-- use before slot: the slots of a worker are used about equally often, so new entries are at the end of the index. With the
-- slot first each was on a page of its own.
ALTER TABLE leases DROP CONSTRAINT leases_worker_id_slot_use_key;
ALTER TABLE leases ADD UNIQUE (worker_id, use, slot);

-- A job's id gets another entry each time its row is written, three in all. Room for them beside the first one spares the
-- search for dead entries and the split of a full page. The pages would be as empty after the split.
ALTER INDEX jobs_pkey SET (fillfactor = 40);

-- run_ended_at: when the run of a cancelled job ended. Every other job that ran ended with its run.
ALTER TABLE jobs ADD COLUMN run_ended_at timestamptz;
UPDATE jobs SET run_ended_at = r.finished_at FROM job_runs r
WHERE r.job_id = jobs.id AND jobs.status = 'CANCELLED' AND r.finished_at IS NOT NULL;
DROP INDEX jobs_finished;
CREATE INDEX jobs_ran ON jobs (type, (coalesce(run_ended_at, finished_at)))
    WHERE started_at IS NOT NULL AND finished_at IS NOT NULL;
CREATE INDEX jobs_never_ran ON jobs (finished_at) WHERE started_at IS NULL AND finished_at IS NOT NULL;

-- No index of job_runs has a column that changes when a run completes, and its pages are filled to a half: so the row is
-- written anew in its page, and needs no new entry in any index. Ended runs are found by jobs_ran.
DROP INDEX job_runs_finished;
DROP INDEX job_runs_outcome;
ALTER TABLE job_runs ADD COLUMN not_completed text COLLATE "C"
    GENERATED ALWAYS AS (CASE WHEN status IN ('FAILED', 'SKIPPED') THEN status END) STORED;
CREATE INDEX job_runs_not_completed ON job_runs (not_completed, id) WHERE not_completed IS NOT NULL;
ALTER TABLE job_runs SET (fillfactor = 50);

-- PostgreSQL reads the conditions of a trigger anew in each statement, so this one is short. Who writes a row by hand does
-- not know of hold, and leaves it to its default.
ALTER TABLE jobs ALTER hold SET DEFAULT -1;
DROP TRIGGER jobs_written_by_hand ON jobs;
CREATE OR REPLACE FUNCTION written_by_hand() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    new.effective_priority := new.priority;
    new.hold := CASE WHEN new.not_before IS NULL THEN 0 ELSE 1 END;
    RETURN new;
END
$$;
CREATE TRIGGER jobs_written_by_hand BEFORE INSERT ON jobs FOR EACH ROW WHEN (new.hold < 0)
    EXECUTE FUNCTION written_by_hand();
