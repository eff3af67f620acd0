-- run_ended_at: when the run of a cancelled job ended. Every other job that ran ended with its run.
ALTER TABLE jobs ADD COLUMN run_ended_at TEXT;
UPDATE jobs SET run_ended_at = r.finished_at FROM job_runs r
WHERE r.job_id = jobs.id AND jobs.status = 'CANCELLED' AND r.finished_at IS NOT NULL;
DROP INDEX jobs_finished;
CREATE INDEX jobs_ran ON jobs (type, coalesce(run_ended_at, finished_at))
    WHERE started_at IS NOT NULL AND finished_at IS NOT NULL;
CREATE INDEX jobs_never_ran ON jobs (finished_at) WHERE started_at IS NULL AND finished_at IS NOT NULL;

-- Ended runs are found by jobs_ran, so the end of a run needs no index entry.
DROP INDEX job_runs_finished;
DROP INDEX job_runs_outcome;
ALTER TABLE job_runs ADD COLUMN not_completed TEXT
    GENERATED ALWAYS AS (CASE WHEN status IN ('FAILED', 'SKIPPED') THEN status END) VIRTUAL;
CREATE INDEX job_runs_not_completed ON job_runs (not_completed, id) WHERE not_completed IS NOT NULL;
