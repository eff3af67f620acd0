-- The process of a worker: a process on the same machine asks the kernel whether it is gone.
ALTER TABLE workers ADD COLUMN machine TEXT;
ALTER TABLE workers ADD COLUMN process_started INTEGER;

-- One row for each label of a schedule or an endpoint.
CREATE TABLE schedule_labels (
    label_name TEXT NOT NULL,
    label_value TEXT NOT NULL,
    label_of TEXT NOT NULL CHECK (label_of IN ('schedule', 'endpoint')),
    schedule_id TEXT NOT NULL,
    PRIMARY KEY (label_name, label_value, label_of, schedule_id)
) WITHOUT ROWID;
INSERT INTO schedule_labels (label_name, label_value, label_of, schedule_id)
SELECT label.key, label.value, CASE WHEN schedules.endpoint IS NULL THEN 'schedule' ELSE 'endpoint' END, schedules.id
FROM schedules, json_each(schedules.labels) AS label
WHERE json_type(schedules.labels) = 'object';

-- The index of ages_at is made when a process with aging_s opens the store (migrate.py).
DROP INDEX jobs_ageing;
