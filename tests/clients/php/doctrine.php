<?php

// The conformance suite's client for Doctrine ORM. Nothing to build: php doctrine.php scenarios.json

declare(strict_types=1);

// Debian's Doctrine is older than its PHP.
error_reporting(E_ALL & ~E_DEPRECATED);

require __DIR__ . '/protocol.php';
require 'Doctrine/ORM/autoload.php';
require 'Symfony/Component/Cache/autoload.php';

use Doctrine\DBAL\DriverManager;
use Doctrine\DBAL\Platforms\AbstractPlatform;
use Doctrine\DBAL\Types\Type;
use Doctrine\ORM\EntityManager;
use Doctrine\ORM\Mapping\Column;
use Doctrine\ORM\Mapping\Entity;
use Doctrine\ORM\Mapping\GeneratedValue;
use Doctrine\ORM\Mapping\Id;
use Doctrine\ORM\Mapping\MappedSuperclass;
use Doctrine\ORM\Mapping\Table;
use Doctrine\ORM\ORMSetup;
use Doctrine\ORM\Version;

/** Doctrine's own type `json` makes arrays of objects, and so {} becomes []. */
class JsonObject extends Type
{
    public function convertToDatabaseValue($value, AbstractPlatform $platform)
    {
        return $value === null ? null : json($value);
    }

    public function convertToPHPValue($value, AbstractPlatform $platform)
    {
        return $value === null ? null : json_decode($value);
    }

    public function getSQLDeclaration(array $column, AbstractPlatform $platform)
    {
        return 'jsonb';
    }

    public function getName()
    {
        return 'json_object';
    }
}

class TextArray extends Type
{
    public function convertToDatabaseValue($value, AbstractPlatform $platform)
    {
        return $value === null ? null : textArray($value);
    }

    public function convertToPHPValue($value, AbstractPlatform $platform)
    {
        return $value === null ? null : fromTextArray($value);
    }

    public function getSQLDeclaration(array $column, AbstractPlatform $platform)
    {
        return 'text[]';
    }

    public function getName()
    {
        return 'text_array';
    }
}

/** Doctrine's own type `datetimetz_immutable` has no fractions of seconds. */
class Timestamp extends Type
{
    public function convertToDatabaseValue($value, AbstractPlatform $platform)
    {
        return $value?->format('Y-m-d H:i:s.uP');
    }

    public function convertToPHPValue($value, AbstractPlatform $platform)
    {
        return $value === null ? null : new DateTimeImmutable($value);
    }

    public function getSQLDeclaration(array $column, AbstractPlatform $platform)
    {
        return 'timestamptz';
    }

    public function getName()
    {
        return 'timestamp_tz';
    }
}

Type::addType('json_object', JsonObject::class);
Type::addType('text_array', TextArray::class);
Type::addType('timestamp_tz', Timestamp::class);

#[MappedSuperclass]
abstract class ProducerColumns
{
    // Not AUTO, which draws an id from the sequence.
    #[Id, Column(type: 'bigint'), GeneratedValue(strategy: 'IDENTITY')] public $id;
    #[Column] public ?string $job_type = null;
    #[Column(type: 'json_object')] public $payload;
    #[Column(type: 'text_array')] public ?array $tags = null;
    #[Column(type: 'guid')] public ?string $pipeline_id = null;
    #[Column] public ?string $queue = null;
    #[Column(type: 'smallint')] public ?int $priority = null;
    #[Column(type: 'timestamp_tz')] public ?DateTimeImmutable $run_after = null;
    #[Column(type: 'integer')] public ?int $max_attempts = null;
    #[Column(type: 'float')] public ?float $timeout_seconds = null;
    #[Column] public ?string $scope = null;
    #[Column(type: 'boolean')] public ?bool $exclusive = null;
    #[Column] public ?string $idempotency_key = null;

    public function __construct(array|object $columns = [])
    {
        foreach ($columns as $name => $value) {
            $this->$name = $value;
        }
    }
}

#[Entity, Table(name: 'jobs', schema: 'reactor')]
class Job extends ProducerColumns
{
    // Read back after the insert.
    #[Column(insertable: false, updatable: false, generated: 'INSERT')] public ?string $state = null;
    #[Column(type: 'timestamp_tz', insertable: false, updatable: false, generated: 'INSERT')] public $created_at;
}

/** Writes every column of the table. */
#[Entity, Table(name: 'jobs', schema: 'reactor')]
class WholeJob extends ProducerColumns
{
    #[Column] public ?string $state = null;
    #[Column(type: 'timestamp_tz')] public $created_at;
    #[Column] public ?string $created_by = null;
    #[Column(type: 'bigint')] public $changed_xid;
    #[Column(type: 'bigint')] public $inserted_xid;
    #[Column(type: 'guid')] public $attempt_id;
    #[Column(type: 'guid')] public $worker_id;
    #[Column(type: 'bigint')] public $parent_id;
    #[Column(type: 'bigint')] public $broken_by;
    #[Column(type: 'timestamp_tz')] public $started_at;
    #[Column(type: 'timestamp_tz')] public $locked_at;
    #[Column(type: 'timestamp_tz')] public $finished_at;
    #[Column(type: 'integer')] public $attempts;
    #[Column(type: 'integer')] public $quota;
    #[Column(type: 'integer')] public $children;
    #[Column(type: 'integer')] public $waiting_on;
    #[Column(type: 'float')] public $progress;
    #[Column(type: 'boolean')] public $is_current;
    #[Column(type: 'boolean')] public $parked;
    #[Column] public ?string $locked_by = null;
    #[Column] public ?string $status_message = null;
    #[Column] public ?string $error = null;
    #[Column(type: 'json_object')] public $result;
}

#[Entity, Table(name: 'dependencies', schema: 'reactor')]
class Dependency
{
    public function __construct(
        #[Id, Column(type: 'bigint')] public $job_id,
        #[Id, Column(type: 'bigint')] public $depends_on,
        #[Column] public string $needs = 'completed',
    ) {
    }
}

$connection = DriverManager::getConnection([
    'driver' => 'pdo_pgsql', 'host' => getenv('PGHOST'), 'port' => getenv('PGPORT'), 'dbname' => getenv('PGDATABASE'),
    'user' => getenv('PGUSER'), 'password' => getenv('PGPASSWORD'),
    // Named prepared statements belong to one server session; behind pgbouncer the next one may be another.
    'driverOptions' => [PDO::PGSQL_ATTR_DISABLE_PREPARES => (bool) getenv('POOLED')],
]);
$config = ORMSetup::createAttributeMetadataConfiguration([__DIR__], isDevMode: true);
// A manager is closed by an error in `flush`, so each scenario has its own.
$open = fn () => new EntityManager($connection, $config);

function save(EntityManager $manager, object ...$entities): void
{
    array_map($manager->persist(...), $entities);
    $manager->flush();
}

function row(EntityManager $manager, Job $job): array
{
    save($manager, $job);
    $manager->refresh($job);
    return ['id' => $job->id, 'pipeline_id' => $job->pipeline_id, 'state' => $job->state, 'queue' => $job->queue,
        'tags' => $job->tags, 'payload' => $job->payload, 'created_at' => $job->created_at->format(DATE_ATOM)];
}

run(Version::VERSION, [
    'insert' => fn ($in) => row($open(), new Job($in)),

    'defaults' => fn ($in) => row($open(), new Job($in)),

    'batch' => function ($in) use ($open) {
        $jobs = array_map(fn ($job) => new Job($job), $in->jobs);
        save($open(), ...$jobs);
        return ['count' => count($jobs), 'ids' => array_column($jobs, 'id')];
    },

    'bind' => function ($in) use ($open) {
        $job = new Job(['run_after' => new DateTimeImmutable($in->run_after)] + (array) $in);
        save($open(), $job);
        return ['id' => $job->id];
    },

    'every_column' => function ($in) use ($open) {
        $job = new WholeJob(['created_at' => new DateTimeImmutable()] + (array) $in);
        save($open(), $job);
        return ['id' => $job->id];
    },

    'dag' => fn ($in) => ($manager = $open())->wrapInTransaction(function () use ($in, $manager) {
        $jobs = array_map(fn ($job) => new Job(['pipeline_id' => $in->pipeline_id] + (array) $job), (array) $in->jobs);
        save($manager, ...array_values($jobs));
        foreach ($in->dependencies as $edge) {
            $manager->persist(new Dependency($jobs[$edge->job]->id, $jobs[$edge->depends_on]->id,
                $edge->needs ?? 'completed'));
        }
        return ['ids' => array_map(fn ($job) => $job->id, $jobs)];
    }),

    'submit' => function ($in) use ($connection) {
        $submit = fn () => $connection->fetchAssociative(
            'select id, outcome from reactor.submit(job_type => :job_type, payload => :payload,
                idempotency_key => :idempotency_key, tags => :tags, timeout_seconds => :timeout_seconds,
                max_attempts => :max_attempts, priority => :priority)',
            (array) $in, ['payload' => 'json_object', 'tags' => 'text_array']);
        $results = [$submit(), $submit()];
        return ['ids' => array_column($results, 'id'), 'outcomes' => array_column($results, 'outcome')];
    },

    'conflict' => function ($in) use ($open) {
        save($open(), new Job($in));
        save($open(), new Job($in));
        return [];
    },

    'ignore_conflict' => function ($in) use ($connection) {
        $insert = fn () => $connection->executeStatement(
            'insert into reactor.jobs (job_type, idempotency_key) values (:job_type, :idempotency_key)
                on conflict do nothing', (array) $in);
        $insert();
        return ['created' => $insert()];
    },

    'rollback' => function ($in) use ($open) {
        $manager = $open();
        $manager->beginTransaction();
        try {
            save($manager, new Job($in));
        } finally {
            $manager->rollback();
        }
        return [];
    },

    'read_own' => function ($in) use ($open) {
        $job = new Job($in);
        save($open(), $job);
        $manager = $open();
        return ['payload' => $manager->find(Job::class, $job->id)->payload,
            'count' => $manager->getRepository(Job::class)->count(['job_type' => $in->job_type, 'state' => 'pending'])];
    },

    'foreign' => fn () => ['found' => $open()->find(Job::class, getenv('OTHERS_JOB')) !== null],

    // `flush` asks for the id by `lastInsertId`.
    'last_id' => function ($in) use ($open) {
        $job = new Job($in);
        save($open(), $job);
        return ['id' => $job->id];
    },
]);
