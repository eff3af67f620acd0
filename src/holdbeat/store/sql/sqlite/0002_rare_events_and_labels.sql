-- Events that are not part of every job's or schedule's life can be found by their name.
DROP INDEX events_counted;
CREATE INDEX events_rare ON events (name, id) WHERE name NOT IN ('job.queued', 'job.claimed', 'run.ended',
    'job.continued', 'retry.created', 'schedule.fired', 'schedule.planned', 'reservation.requested',
    'reservation.granted', 'reservation.released');

-- What is in the log is counted there; here remains what was pruned from it.
UPDATE meta SET value = CAST(CAST(value AS INTEGER)
    - (SELECT count(*) FROM events WHERE events.name = substr(meta.key, 14)) AS TEXT)
WHERE key LIKE 'events.count.%';

-- One row for each label of a job, written name=value.
CREATE TABLE job_labels (
    label TEXT NOT NULL,
    job_id TEXT NOT NULL,
    PRIMARY KEY (label, job_id)
) WITHOUT ROWID;
INSERT INTO job_labels (label, job_id)
SELECT DISTINCT l.key || '=' || l.value, jobs.id FROM jobs, json_each(jobs.labels) AS l WHERE jobs.labels <> '{}';
