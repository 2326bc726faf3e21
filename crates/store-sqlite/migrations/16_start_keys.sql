-- Keys by which a start that is asked for again is known. They are kept as long as the run, and at least a day.
CREATE TABLE start_keys (
    operator TEXT    NOT NULL,
    key      TEXT    NOT NULL,
    input    TEXT    NOT NULL,
    run      TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (operator, key)
) WITHOUT ROWID;
CREATE INDEX start_keys_by_age ON start_keys (at);
