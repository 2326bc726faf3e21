-- The retention of errors and results that a process has set. It counts for those that set none.
ALTER TABLE store ADD COLUMN retention TEXT;
