-- The mark of this database, by which a cursor of another one is refused; a backup has the same mark. And the number of
-- erased events and removed runs: a process that keeps texts of records in memory compares it.
CREATE TABLE store (
    only_row    INTEGER PRIMARY KEY CHECK (only_row = 1),
    mark        INTEGER NOT NULL,
    erasures    INTEGER NOT NULL
);
INSERT INTO store VALUES (1, random() & 0xffffffff, 0);
CREATE TRIGGER events_erased AFTER UPDATE OF erased ON events WHEN new.erased IS NOT NULL BEGIN
    UPDATE store SET erasures = erasures + 1;
END;
CREATE TRIGGER runs_removed AFTER DELETE ON runs BEGIN
    UPDATE store SET erasures = erasures + 1;
END;
