-- A random number of each run. Those of removed runs are kept for a year: a process that knows a removed run does not
-- take a run that begins under its id for one that has lost its record.
ALTER TABLE backstop.runs ADD COLUMN incarnation bytea;
UPDATE backstop.runs SET incarnation = uuid_send(gen_random_uuid());
CREATE TABLE backstop.removed_incarnations (
    incarnation bytea PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX removed_incarnations_by_time ON backstop.removed_incarnations (at);
-- Whether the ids of what a removed run stored are forgotten with it.
ALTER TABLE backstop.removed ADD COLUMN is_silent boolean NOT NULL DEFAULT false;
-- When an id was taken away: what is old enough is not known any more.
ALTER TABLE backstop.expired ADD COLUMN at timestamptz NOT NULL DEFAULT now();
CREATE INDEX expired_by_time ON backstop.expired (at);
-- When an approval was asked, by the clock of the server.
ALTER TABLE backstop.approvals ADD COLUMN asked_at timestamptz NOT NULL DEFAULT clock_timestamp();
