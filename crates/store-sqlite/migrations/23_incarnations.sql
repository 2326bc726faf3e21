-- A random number of each run. Those of removed runs are kept for a year: a process that knows a removed run does not
-- take a run that begins under its id for one that has lost its record.
ALTER TABLE runs ADD COLUMN incarnation BLOB;
UPDATE runs SET incarnation = randomblob(16);
CREATE TABLE removed_incarnations (
    incarnation BLOB    PRIMARY KEY,
    at          INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX removed_incarnations_by_time ON removed_incarnations (at);
-- Whether the ids of what a removed run stored are forgotten with it.
ALTER TABLE removed ADD COLUMN is_silent INTEGER NOT NULL DEFAULT FALSE;
-- When an id was taken away: what is old enough is not known any more.
ALTER TABLE expired ADD COLUMN at INTEGER NOT NULL DEFAULT 0;
UPDATE expired SET at = unixepoch() * 1000;
CREATE INDEX expired_by_time ON expired (at);
