-- How long the lease of a process lasts, by which others tell how long it may go without a renewal.
ALTER TABLE backstop.processes ADD COLUMN lease_ms bigint NOT NULL DEFAULT 15000;
