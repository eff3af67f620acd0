-- Why the due times of a schedule cannot be told, such as a zone that is gone; null for all that are well.
ALTER TABLE schedules ADD COLUMN trouble text;

-- What the overview looks for: schedules that fail or are in trouble.
CREATE INDEX schedules_in_need ON schedules (failure_count, id)
    WHERE enabled AND (failure_count > 0 OR trouble IS NOT NULL);
