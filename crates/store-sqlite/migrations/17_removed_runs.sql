-- A key whose run was removed starts nothing: that run has done its work.
ALTER TABLE start_keys ADD COLUMN removed INTEGER NOT NULL DEFAULT FALSE;
CREATE INDEX start_keys_by_run ON start_keys (run);
