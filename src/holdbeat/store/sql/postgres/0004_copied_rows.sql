-- Whoever copies a whole store brings hold and effective_priority along, and sets holdbeat.copying to on for the
-- transaction; then the row is stored as it is. A row that has ended needs neither column to be right.
DROP TRIGGER jobs_written_by_hand ON jobs;
CREATE TRIGGER jobs_written_by_hand BEFORE INSERT ON jobs FOR EACH ROW
    WHEN (new.status = 'QUEUED'
      AND (new.effective_priority <> new.priority OR (new.hold = 0 AND new.not_before IS NOT NULL))
      AND current_setting('holdbeat.copying', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION written_by_hand();
