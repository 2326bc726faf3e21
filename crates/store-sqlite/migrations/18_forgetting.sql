-- Sessions that are being forgotten: no run begins there, and none is reopened or copied from there. What a process that
-- died has marked stands for an hour.
CREATE TABLE forgetting (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    session     TEXT    NOT NULL,
    at          INTEGER NOT NULL
);
CREATE INDEX forgetting_by_session ON forgetting (session);
-- The open runs of a session, however many it has.
CREATE INDEX runs_at_work ON runs (session) WHERE state IN ('running', 'waiting_approval', 'parked');
-- Whether every row was written while what is deleted is overwritten: a file of an older version may hold copies of rows.
CREATE TABLE erasing (
    only_row    INTEGER PRIMARY KEY CHECK (only_row = 1),
    is_clean    INTEGER NOT NULL
);
INSERT INTO erasing VALUES (1, (SELECT count(*) = 0 FROM events) AND (SELECT count(*) = 0 FROM errors)
    AND (SELECT count(*) = 0 FROM results) AND (SELECT count(*) = 0 FROM state)
    AND (SELECT coalesce(max(seq), 0) = 0 FROM sqlite_sequence));
