<?php

// The code of the section "Laravel" of docs/clients/php.md. Nothing to build: php page_eloquent.php

declare(strict_types=1);

// Debian's Eloquent is older than its PHP.
error_reporting(E_ALL & ~E_DEPRECATED);

require 'Illuminate/Database/autoload.php';

use Illuminate\Database\Capsule\Manager as DB;
use Illuminate\Database\Eloquent\Model;
use Illuminate\Database\QueryException;

class Job extends Model
{
    public const UPDATED_AT = null;

    protected $table = 'reactor.jobs';
    // With the zone; Laravel's default format loses it, and the session's zone is not always the application's.
    protected $dateFormat = 'Y-m-d H:i:s.uP';
    protected $guarded = [];
    // As an object: the cast `array` writes {} back as [], which is refused.
    protected $casts = ['payload' => 'object', 'result' => 'object', 'run_after' => 'datetime'];
}

class Dependency extends Model
{
    public $timestamps = false;
    // The key is (job_id, depends_on), and Eloquent has no composite keys: create and query, but don't save again.
    public $incrementing = false;

    protected $table = 'reactor.dependencies';
    protected $primaryKey = null;
    protected $guarded = [];
}

$manager = new DB();
$manager->addConnection(['driver' => 'pgsql', 'host' => getenv('PGHOST'), 'port' => getenv('PGPORT'),
    'database' => getenv('PGDATABASE'), 'username' => getenv('PGUSER'), 'password' => getenv('PGPASSWORD')]);
$manager->setAsGlobal();
$manager->bootEloquent();

$job = Job::create(['job_type' => 'csv_ingest', 'payload' => ['file' => 'a.csv'], 'tags' => '{nightly}']);
$job->refresh(); // `create` sets the id only
echo "inserted $job->id $job->state\n";

// `insert` knows no casts: give JSON as text.
Job::insert(array_map(
    fn ($n) => ['job_type' => 'csv_ingest', 'payload' => json_encode(['file' => "$n.csv"])], range(1, 100)));
echo "batch 100\n";

[$extract, $load] = DB::connection()->transaction(function () {
    $extract = Job::create(['job_type' => 'extract'])->refresh();
    $load = Job::create(['job_type' => 'load', 'pipeline_id' => $extract->pipeline_id]);
    Dependency::create(['job_id' => $load->id, 'depends_on' => $extract->id]);
    return [$extract, $load];
});
echo "dag $extract->id $load->id\n";

for ($n = 0; $n < 2; $n++) {
    $job = DB::connection()->selectOne('select * from reactor.submit(?, ?, idempotency_key => ?)',
        ['csv_ingest', json_encode(['file' => 'b.csv']), 'upload-17']);
    echo "$job->outcome $job->id\n"; // created, then existing
}

$ignored = Job::insertOrIgnore(['job_type' => 'csv_ingest', 'idempotency_key' => 'upload-17']);
echo "ignored $ignored\n"; // 0: the key is taken

try {
    Job::create(['job_type' => 'csv_ingest', 'idempotency_key' => 'upload-17']);
} catch (QueryException $error) {
    echo "refused {$error->errorInfo[0]}\n"; // 23505
}

while (in_array(($state = Job::find($load->id)->state), ['waiting', 'pending', 'running'])) {
    usleep(100_000);
}
echo "end $state\n";
