#!/usr/bin/perl
# The conformance suite's client for DBI with DBD::Pg. Nothing to build: perl dbi.pl scenarios.json
use strict;
use warnings;
use utf8;
use DBI;
use JSON::PP;
use POSIX ();

binmode STDOUT, ':encoding(UTF-8)';
my $json = JSON::PP->new->canonical;
my $db;

sub transaction {
    my ($work) = @_;
    $db->begin_work;
    my $result = eval { $work->() };
    if (my $error = $@) {
        $db->rollback;
        die $error;
    }
    $db->commit;
    return $result;
}

sub row {
    my ($job) = @_;
    return { %$job{qw(id pipeline_id state queue tags created_at)}, payload => $json->decode($job->{payload}) };
}

my @scenarios = (
    insert => sub {
        my ($in) = @_;
        # An array reference becomes a PostgreSQL array; JSON is sent as text.
        my $job = $db->selectrow_hashref(
            'insert into reactor.jobs (job_type, payload, tags) values (?, ?, ?) returning *', undef,
            $in->{job_type}, $json->encode($in->{payload}), $in->{tags});
        return row($job);
    },
    defaults => sub {
        my ($in) = @_;
        return row($db->selectrow_hashref(
            'insert into reactor.jobs (job_type) values (?) returning *', undef, $in->{job_type}));
    },
    batch => sub {
        my ($in) = @_;
        my @jobs = @{ $in->{jobs} };
        my $count = transaction(sub {
            my $insert = $db->prepare(
                'insert into reactor.jobs (job_type, payload, tags, priority) values (?, ?, ?, ?)');
            my @rows = map { [$_->{job_type}, $json->encode($_->{payload}), $_->{tags}, $_->{priority}] } @jobs;
            return $insert->execute_for_fetch(sub { shift @rows });
        });
        return { count => 0 + $count };
    },
    bind => sub {
        my ($in) = @_;
        my %job = (%$in, payload => $json->encode($in->{payload}), exclusive => $in->{exclusive} ? 1 : 0);
        my @columns = sort keys %job;
        my ($id) = $db->selectrow_array(
            sprintf('insert into reactor.jobs (%s) values (%s) returning id',
                join(', ', @columns), join(', ', ('?') x @columns)),
            undef, @job{@columns});
        return { id => $id };
    },
    every_column => sub {
        my ($in) = @_;
        my @columns = grep { $_ ne 'id' } @{ $db->selectcol_arrayref(
            q{select attname from pg_attribute where attrelid = 'reactor.jobs'::regclass and attnum > 0
                and not attisdropped order by attnum}) };
        my %job = (
            job_type => $in->{job_type}, payload => $json->encode($in->{payload}),
            created_at => POSIX::strftime('%Y-%m-%dT%H:%M:%SZ', gmtime));
        my ($id) = $db->selectrow_array(
            sprintf('insert into reactor.jobs (%s) values (%s) returning id',
                join(', ', @columns), join(', ', ('?') x @columns)),
            undef, @job{@columns});
        return { id => $id };
    },
    dag => sub {
        my ($in) = @_;
        my %ids;
        transaction(sub {
            for my $name (sort keys %{ $in->{jobs} }) {
                ($ids{$name}) = $db->selectrow_array(
                    'insert into reactor.jobs (job_type, pipeline_id) values (?, ?) returning id', undef,
                    $in->{jobs}{$name}{job_type}, $in->{pipeline_id});
            }
            my $edge = $db->prepare('insert into reactor.dependencies (job_id, depends_on, needs) values (?, ?, ?)');
            $edge->execute($ids{ $_->{job} }, $ids{ $_->{depends_on} }, $_->{needs} // 'completed')
                for @{ $in->{dependencies} };
        });
        return { ids => \%ids };
    },
    submit => sub {
        my ($in) = @_;
        my (@ids, @outcomes);
        for (1, 2) {
            my ($id, $outcome) = $db->selectrow_array(
                'select id, outcome from reactor.submit(job_type => ?, payload => ?, idempotency_key => ?, tags => ?,
                    timeout_seconds => ?, max_attempts => ?, priority => ?)',
                undef, $in->{job_type}, $json->encode($in->{payload}),
                @$in{qw(idempotency_key tags timeout_seconds max_attempts priority)});
            push @ids, $id;
            push @outcomes, $outcome;
        }
        return { ids => \@ids, outcomes => \@outcomes };
    },
    conflict => sub {
        my ($in) = @_;
        my $insert = $db->prepare('insert into reactor.jobs (job_type, idempotency_key) values (?, ?)');
        $insert->execute(@$in{qw(job_type idempotency_key)}) for 1, 2;
        return {};
    },
    ignore_conflict => sub {
        my ($in) = @_;
        my $insert = $db->prepare(
            'insert into reactor.jobs (job_type, idempotency_key) values (?, ?) on conflict do nothing');
        my $created;
        $created = $insert->execute(@$in{qw(job_type idempotency_key)}) for 1, 2;
        return { created => 0 + $created };
    },
    rollback => sub {
        my ($in) = @_;
        $db->begin_work;
        $db->do('insert into reactor.jobs (job_type) values (?)', undef, $in->{job_type});
        $db->rollback;
        return {};
    },
    read_own => sub {
        my ($in) = @_;
        my ($id) = $db->selectrow_array(
            'insert into reactor.jobs (job_type, payload) values (?, ?) returning id', undef,
            $in->{job_type}, $json->encode($in->{payload}));
        my $job = $db->selectrow_hashref('select * from reactor.jobs where id = ?', undef, $id);
        my ($count) = $db->selectrow_array(
            'select count(*) from reactor.jobs where job_type = ? and state = ?', undef, $in->{job_type}, 'pending');
        return { payload => $json->decode($job->{payload}), count => $count };
    },
    foreign => sub {
        my $job = $db->selectrow_hashref('select * from reactor.jobs where id = ?', undef, $ENV{OTHERS_JOB});
        return { found => $job ? JSON::PP::true : JSON::PP::false };
    },
    last_id => sub {
        my ($in) = @_;
        # In one transaction: a pooler may give the next one another session, which has no last id.
        my $id = transaction(sub {
            $db->do('insert into reactor.jobs (job_type, payload) values (?, ?)', undef,
                $in->{job_type}, $json->encode($in->{payload}));
            return $db->last_insert_id(undef, 'reactor', 'jobs', undef);
        });
        return { id => $id };
    },
);

open my $file, '<:raw', $ARGV[0] or die "$ARGV[0]: $!";
my $input = decode_json(do { local $/; <$file> });
$db = DBI->connect("dbi:Pg:dbname=$ENV{PGDATABASE}", undef, undef, {
    RaiseError => 1, PrintError => 0, AutoCommit => 1,
    # Read here: the end of a statement handle's life clears the state.
    HandleError => sub {
        my ($message, $handle) = @_;
        die { sqlstate => $handle->state, constraint => $db->pg_error_field('constraint'), message => $message };
    },
    # Named prepared statements belong to one server session; behind pgbouncer the next one may be another.
    pg_server_prepare => $ENV{POOLED} ? 0 : 1,
});
print $json->encode({ version => "$DBD::Pg::VERSION" }), "\n";
while (my ($name, $scenario) = splice @scenarios, 0, 2) {
    my $returned = eval { $scenario->($input->{$name}) };
    print $json->encode({
        scenario => $name,
        $returned ? (returned => $returned) : (error => ref $@ ? $@ : { message => $@ }),
    }), "\n";
}
$db->disconnect;
