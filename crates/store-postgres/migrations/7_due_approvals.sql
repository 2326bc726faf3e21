-- When an open approval expires: its run is then taken by a worker, as a parked run that is due.
ALTER TABLE backstop.approvals ADD COLUMN expires_at bigint;
CREATE INDEX approvals_by_expiry ON backstop.approvals (expires_at) WHERE expires_at IS NOT NULL;
