<?php

// The conformance suite's client for Eloquent, the ORM of Laravel. Nothing to build: php eloquent.php scenarios.json

declare(strict_types=1);

// Debian's Eloquent is older than its PHP.
error_reporting(E_ALL & ~E_DEPRECATED);

require __DIR__ . '/protocol.php';
require 'Illuminate/Database/autoload.php';

use Illuminate\Contracts\Database\Eloquent\CastsAttributes;
use Illuminate\Database\Capsule\Manager as DB;
use Illuminate\Database\Eloquent\Model;

/** Eloquent has no cast for PostgreSQL's arrays. */
class TextArray implements CastsAttributes
{
    public function get($model, string $key, $value, array $attributes)
    {
        return $value === null ? null : fromTextArray($value);
    }

    public function set($model, string $key, $value, array $attributes)
    {
        return $value === null ? null : textArray($value);
    }
}

class Job extends Model
{
    public const UPDATED_AT = null;

    protected $table = 'reactor.jobs';
    // With the zone; Laravel's default format loses it, and the session's zone is not always the application's.
    protected $dateFormat = 'Y-m-d H:i:s.uP';
    protected $guarded = [];
    // As an object: the cast `array` writes {} back as [], which is refused.
    protected $casts = ['payload' => 'object', 'result' => 'object', 'tags' => TextArray::class,
        'run_after' => 'datetime', 'exclusive' => 'boolean'];
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
$manager->addConnection([
    'driver' => 'pgsql', 'host' => getenv('PGHOST'), 'port' => getenv('PGPORT'), 'database' => getenv('PGDATABASE'),
    'username' => getenv('PGUSER'), 'password' => getenv('PGPASSWORD'), 'charset' => 'utf8',
    // Named prepared statements belong to one server session; behind pgbouncer the next one may be another.
    'options' => [PDO::PGSQL_ATTR_DISABLE_PREPARES => (bool) getenv('POOLED')],
]);
$manager->setAsGlobal();
$manager->bootEloquent();

function row(Job $job): array
{
    // `create` sets the id; refresh reads what the database filled in.
    return $job->refresh()->only(['id', 'pipeline_id', 'state', 'queue', 'tags', 'payload', 'created_at']);
}

run('8', [
    'insert' => fn ($in) => row(
        Job::create(['job_type' => $in->job_type, 'payload' => $in->payload, 'tags' => $in->tags])),

    'defaults' => fn ($in) => row(Job::create(['job_type' => $in->job_type])),

    'batch' => function ($in) {
        // Model::insert knows no casts: give JSON and arrays as texts.
        Job::insert(array_map(fn ($job) => ['job_type' => $job->job_type, 'payload' => json($job->payload),
            'tags' => textArray($job->tags), 'priority' => $job->priority], $in->jobs));
        return ['count' => count($in->jobs)];
    },

    'bind' => fn ($in) => Job::create(['run_after' => new DateTimeImmutable($in->run_after)] + (array) $in)
        ->only('id'),

    'every_column' => function ($in) {
        $columns = DB::table('pg_attribute')->whereRaw("attrelid = 'reactor.jobs'::regclass")
            ->where('attnum', '>', 0)->where('attname', '<>', 'id')->pluck('attname')->all();
        $attributes = array_fill_keys($columns, null);
        return Job::create(['job_type' => $in->job_type, 'payload' => $in->payload] + $attributes)->only('id');
    },

    'dag' => fn ($in) => DB::connection()->transaction(function () use ($in) {
        $ids = [];
        foreach ($in->jobs as $name => $job) {
            $ids[$name] = Job::create(['job_type' => $job->job_type, 'pipeline_id' => $in->pipeline_id])->id;
        }
        foreach ($in->dependencies as $dependency) {
            Dependency::create(['job_id' => $ids[$dependency->job], 'depends_on' => $ids[$dependency->depends_on],
                'needs' => $dependency->needs ?? 'completed']);
        }
        return ['ids' => $ids];
    }),

    'submit' => function ($in) {
        $submit = fn () => DB::connection()->selectOne(
            'select id, outcome from reactor.submit(job_type => :job_type, payload => :payload,
                idempotency_key => :idempotency_key, tags => :tags, timeout_seconds => :timeout_seconds,
                max_attempts => :max_attempts, priority => :priority)',
            ['payload' => json($in->payload), 'tags' => textArray($in->tags)] + (array) $in);
        $results = [$submit(), $submit()];
        return ['ids' => array_column($results, 'id'), 'outcomes' => array_column($results, 'outcome')];
    },

    'conflict' => function ($in) {
        Job::create((array) $in);
        Job::create((array) $in);
        return [];
    },

    'ignore_conflict' => function ($in) {
        Job::insertOrIgnore((array) $in);
        return ['created' => Job::insertOrIgnore((array) $in)];
    },

    'rollback' => function ($in) {
        DB::connection()->beginTransaction();
        try {
            Job::create((array) $in);
        } finally {
            DB::connection()->rollBack();
        }
        return [];
    },

    'read_own' => function ($in) {
        $job = Job::find(Job::create((array) $in)->id);
        return ['payload' => $job->payload,
            'count' => Job::where('job_type', $in->job_type)->where('state', 'pending')->count()];
    },

    'foreign' => fn () => ['found' => Job::find(getenv('OTHERS_JOB')) !== null],

    'last_id' => fn ($in) => [
        'id' => Job::insertGetId(['job_type' => $in->job_type, 'payload' => json($in->payload)])],
]);
