#!/usr/bin/perl
# The code of docs/clients/perl.md. Nothing to build: perl page.pl
use strict;
use warnings;

use DBI;
use HTTP::Tiny;
use JSON::PP;

my $db = DBI->connect("dbi:Pg:dbname=$ENV{PGDATABASE}", undef, undef, { RaiseError => 1, PrintError => 0 });
my $json = JSON::PP->new; # texts, not bytes: DBD::Pg encodes them

# An array reference becomes a PostgreSQL array; JSON is sent as text.
my $job = $db->selectrow_hashref(
    'insert into reactor.jobs (job_type, payload, tags) values (?, ?, ?) returning *', undef,
    'csv_ingest', $json->encode({ file => 'a.csv' }), ['nightly', 'two words']);
print "inserted $job->{id} $job->{state}\n";

my @jobs = map { { job_type => 'csv_ingest', payload => { file => "$_.csv" } } } 1 .. 100;
my $ids = $db->selectcol_arrayref('select id from reactor.submit_many(?)', undef, $json->encode(\@jobs));
print 'batch ', scalar @$ids, "\n";

my ($extract, $load);
$db->begin_work;
eval {
    my $insert = 'insert into reactor.jobs (job_type, pipeline_id) values (?, ?) returning id, pipeline_id';
    $extract = $db->selectrow_hashref($insert, undef, 'extract', undef);
    $load = $db->selectrow_hashref($insert, undef, 'load', $extract->{pipeline_id});
    $db->do('insert into reactor.dependencies (job_id, depends_on) values (?, ?)', undef,
        $load->{id}, $extract->{id});
    $db->commit;
    1;
} or do {
    my $error = $@;
    $db->rollback;
    die $error;
};
print "dag $extract->{id} $load->{id}\n";

for (1, 2) {
    my $job = $db->selectrow_hashref('select * from reactor.submit(?, ?, idempotency_key => ?)', undef,
        'csv_ingest', $json->encode({ file => 'b.csv' }), 'upload-17');
    print "$job->{outcome} $job->{id}\n"; # created, then existing
}

my ($received, $event) = ('', '');
my $response = HTTP::Tiny->new(timeout => 60)->get(
    "$ENV{REACTOR_URL}/v1/pipelines/$load->{pipeline_id}/events", {
        # With a token: headers => { Authorization => "Bearer $token" },
        data_callback => sub {
            $received .= shift;
            while ($received =~ s/\A(.*)\n//) {
                my ($field, $value) = split /: /, $1, 2;
                next unless $field;
                $event = $value if $field eq 'event';
                my $data = $field eq 'data' ? decode_json($value) : next;
                print "$event ", $data->{state} // '', "\n"; # at last "end completed"
            }
        },
    });
die "$response->{status} $response->{reason}" unless $response->{success};
