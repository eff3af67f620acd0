-- A row that has ended needs neither hold nor effective_priority to be right. (A store is copied into PostgreSQL only.)
DROP TRIGGER jobs_written_by_hand;
CREATE TRIGGER jobs_written_by_hand AFTER INSERT ON jobs
    WHEN new.status = 'QUEUED'
     AND (new.effective_priority <> new.priority OR (new.hold = 0 AND new.not_before IS NOT NULL))
BEGIN
    UPDATE jobs SET effective_priority = new.priority, hold = max(new.hold, new.not_before IS NOT NULL)
    WHERE id = new.id;
END;
