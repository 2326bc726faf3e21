-- A key whose run was removed starts nothing: that run has done its work.
ALTER TABLE backstop.start_keys ADD COLUMN removed boolean NOT NULL DEFAULT false;
CREATE INDEX start_keys_by_run ON backstop.start_keys (run);
-- The runs that a run dispatched are kept with it.
CREATE INDEX runs_by_parent ON backstop.runs (parent) WHERE parent IS NOT NULL;
