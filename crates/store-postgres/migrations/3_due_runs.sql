-- Runs of the queue by when they are due, so that those of later are not looked at before.
DROP INDEX backstop.queue_waiting;
CREATE INDEX queue_due ON backstop.queue (queue, not_before, number) WHERE owner IS NULL AND refused IS NULL;
