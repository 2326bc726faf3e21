-- A random number of each run. Those of removed runs are kept: a process that knows a removed run does not take a run
-- that begins under its id for one that has lost its record.
ALTER TABLE runs ADD COLUMN incarnation BLOB;
UPDATE runs SET incarnation = randomblob(16);
CREATE TABLE removed_incarnations (
    incarnation BLOB    PRIMARY KEY
) WITHOUT ROWID;
