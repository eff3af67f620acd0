-- The process of a worker: a process on the same machine asks the kernel whether it is gone.
ALTER TABLE workers ADD COLUMN machine text COLLATE "C", ADD COLUMN process_started bigint;

-- One row for each label of a schedule or an endpoint.
CREATE TABLE schedule_labels (
    label_name text COLLATE "C" NOT NULL,
    label_value text COLLATE "C" NOT NULL,
    label_of text COLLATE "C" NOT NULL CHECK (label_of IN ('schedule', 'endpoint')),
    schedule_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (label_name, label_value, label_of, schedule_id)
);
INSERT INTO schedule_labels (label_name, label_value, label_of, schedule_id)
SELECT label.key, label.value, CASE WHEN schedules.endpoint IS NULL THEN 'schedule' ELSE 'endpoint' END, schedules.id
FROM schedules CROSS JOIN LATERAL json_each_text(
    CASE json_typeof(schedules.labels) WHEN 'object' THEN schedules.labels ELSE '{}' END
) AS label;

-- The index of ages_at is made when a process with aging_s opens the store (migrate.py).
DROP INDEX jobs_ageing;
