-- Not counters: each holds the time of a channel's last notification, for functions/notify.sql. A sequence is visible
-- to all transactions at once, and setval takes no lock until commit.
create sequence reactor.jobs_notified_at minvalue 0 start 0;
comment on sequence reactor.jobs_notified_at is
    'When the channel reactor_jobs was last notified, in milliseconds since 1970.';
create sequence reactor.feed_notified_at minvalue 0 start 0;
comment on sequence reactor.feed_notified_at is
    'When the channel reactor_feed was last notified, in milliseconds since 1970.';
