-- The publication: what the log's readers get to see. Inserts only, since nothing but an insert is an event (and so the
-- application's own deletes need no replica identity), of the outbox only, partitions under the table's own name.
--
-- It must exist before the replication slot does: a slot reads the catalog as it was at its own position in the log, and
-- a publication made later does not exist there. An existing publication is left as it is.

do $walpost$
begin
    create publication walpost for table walpost.outbox with (publish = 'insert', publish_via_partition_root = true);
exception when duplicate_object then
    raise notice 'the publication exists already and is left as it is';
end
$walpost$;
