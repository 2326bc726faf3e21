-- The part of its session's transcript that each run adds, derived from its events up to `head`, so that a later run of
-- the session need not read them again. It may be missing. It goes with its run, and with each erasure in its run.
CREATE TABLE backstop.transcripts (
    run_id      bigint PRIMARY KEY REFERENCES backstop.runs (id) ON DELETE CASCADE,
    head        bytea NOT NULL,
    follows     text COLLATE "C",
    text        text  NOT NULL,
    digest      bytea NOT NULL
);
