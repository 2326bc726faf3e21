-- A random number of each run. Those of removed runs are kept: a process that knows a removed run does not take a run
-- that begins under its id for one that has lost its record.
ALTER TABLE backstop.runs ADD COLUMN incarnation bytea;
UPDATE backstop.runs SET incarnation = uuid_send(gen_random_uuid());
CREATE TABLE backstop.removed_incarnations (
    incarnation bytea PRIMARY KEY
);
