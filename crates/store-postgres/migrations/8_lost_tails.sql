-- Runs whose records have lost events that were acknowledged: the server came back older than a process knows it. They are
-- refused until a person accepts that. A run that has lost its whole record has a row here too.
CREATE TABLE backstop.lost_tails (
    run         text COLLATE "C" PRIMARY KEY,
    seq         bigint NOT NULL,
    hash        bytea  NOT NULL,
    at          bigint NOT NULL
);
