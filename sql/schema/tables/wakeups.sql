-- Always empty: rows are deleted right after their insert. An insert queues the deferred trigger that notifies at the
-- end of the commit, and tells the number of the current subtransaction (functions/notify.sql).
create unlogged table reactor.wakeups (
    channel text
);
comment on table reactor.wakeups is 'Engine only, always empty: queues a notification for the end of the transaction.';
