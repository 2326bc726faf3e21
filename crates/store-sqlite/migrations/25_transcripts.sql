-- The part of its session's transcript that each run adds, derived from its events up to `head`, so that a later run of
-- the session need not read them again. It may be missing. It goes with its run, and with each erasure in its run.
CREATE TABLE transcripts (
    run_id      INTEGER PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,
    head        BLOB    NOT NULL,
    follows     TEXT,
    text        TEXT    NOT NULL,
    digest      BLOB    NOT NULL
);
CREATE TRIGGER transcripts_erased AFTER UPDATE OF erased ON events WHEN new.erased IS NOT NULL BEGIN
    DELETE FROM transcripts WHERE run_id = new.run_id;
END;
