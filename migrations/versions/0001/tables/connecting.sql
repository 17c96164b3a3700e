-- A row for each transaction that has inserted dependencies and not connected them yet: its deferred trigger connects
-- them at commit and deletes the row. A table and not a setting, because a producer could write a setting.
create table reactor.connecting (
    xid bigint primary key,
    first_id bigint not null,
    predecessors bigint[]
);
comment on table reactor.connecting is
    'engine only: transactions whose dependencies are not connected yet; other transactions never see a row';
comment on column reactor.connecting.first_id is 'the lowest id of the jobs whose dependencies were inserted';
comment on column reactor.connecting.predecessors is
    'the jobs of other transactions that the connected ones depend on; locked last';
