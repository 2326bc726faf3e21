-- A key whose run was removed starts nothing: that run has done its work.
ALTER TABLE start_keys ADD COLUMN removed INTEGER NOT NULL DEFAULT FALSE;
CREATE INDEX start_keys_by_run ON start_keys (run);
-- The runs that a run dispatched are kept with it.
CREATE INDEX runs_by_parent ON runs (parent) WHERE parent IS NOT NULL;
