-- Runs whose records have lost events that were acknowledged: the file came back older than a process knows it. They are
-- refused until a person accepts that. A run that has lost its whole record has a row here too.
CREATE TABLE lost_tails (
    run         TEXT    PRIMARY KEY,
    seq         INTEGER NOT NULL,
    hash        BLOB    NOT NULL,
    at          INTEGER NOT NULL
) WITHOUT ROWID;
