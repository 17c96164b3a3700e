-- Not counters: together they hold the last notification of each channel, for functions/notify.sql. A sequence is
-- visible to all transactions at once, and setval takes no lock until commit.
create sequence reactor.jobs_notified_at minvalue 0 start 0;
comment on sequence reactor.jobs_notified_at is
    'When the channel reactor_jobs was last notified, in milliseconds since 1970.';
create sequence reactor.jobs_notified_by minvalue 0 start 0;
comment on sequence reactor.jobs_notified_by is
    'The transaction (or subtransaction) that last notified the channel reactor_jobs. It may have been rolled back.';
create sequence reactor.jobs_refused_at minvalue 0 start 0;
comment on sequence reactor.jobs_refused_at is
    'When a notification of the channel reactor_jobs was last found rolled back, in milliseconds since 1970.';
create sequence reactor.jobs_queued_by minvalue 0 start 0;
comment on sequence reactor.jobs_queued_by is
    'The transaction that last queued a notification of the channel reactor_jobs for its end.';
create sequence reactor.feed_notified_at minvalue 0 start 0;
comment on sequence reactor.feed_notified_at is
    'When the channel reactor_feed was last notified, in milliseconds since 1970.';
create sequence reactor.feed_notified_by minvalue 0 start 0;
comment on sequence reactor.feed_notified_by is
    'The transaction (or subtransaction) that last notified the channel reactor_feed. It may have been rolled back.';
create sequence reactor.feed_refused_at minvalue 0 start 0;
comment on sequence reactor.feed_refused_at is
    'When a notification of the channel reactor_feed was last found rolled back, in milliseconds since 1970.';
create sequence reactor.places_notified_at minvalue 0 start 0;
comment on sequence reactor.places_notified_at is
    'When the channel reactor_places was last notified, in milliseconds since 1970.';
create sequence reactor.places_notified_by minvalue 0 start 0;
comment on sequence reactor.places_notified_by is
    'The transaction (or subtransaction) that last notified the channel reactor_places. It may have been rolled back.';
create sequence reactor.places_refused_at minvalue 0 start 0;
comment on sequence reactor.places_refused_at is
    'When a notification of the channel reactor_places was last found rolled back, in milliseconds since 1970.';
