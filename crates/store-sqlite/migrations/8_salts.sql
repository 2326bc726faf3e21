-- What is hashed before a payload; NULL in runs of the first layout. Of an event that was erased, the digest
-- of both is left, and no payload.
ALTER TABLE events ADD COLUMN salt BLOB;
ALTER TABLE events ADD COLUMN erased BLOB;
