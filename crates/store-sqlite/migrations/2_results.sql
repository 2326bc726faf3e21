-- A body that was kept for its time is taken away, its row stays, so that its id answers "expired".
CREATE TABLE results (
    id          TEXT    PRIMARY KEY,
    session     TEXT    NOT NULL,
    run         TEXT    NOT NULL,
    call_id     TEXT    NOT NULL,
    tool        TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    body        TEXT
) WITHOUT ROWID;
CREATE INDEX results_by_time ON results (at);
