-- The mark of this database, by which a cursor of another one is refused; a dump has the same mark. And the number of
-- erased events and removed runs: a process that keeps texts of records in memory compares it.
ALTER TABLE backstop.meta ADD COLUMN mark bigint NOT NULL DEFAULT floor(random() * 4294967296)::bigint;
ALTER TABLE backstop.meta ADD COLUMN erasures bigint NOT NULL DEFAULT 0;
