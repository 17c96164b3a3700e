<?php

// The conformance suite's client for PDO. Nothing to build: php pdo.php scenarios.json

declare(strict_types=1);

require __DIR__ . '/protocol.php';

$db = new PDO('pgsql:host=' . getenv('PGHOST') . ';port=' . getenv('PGPORT') . ';dbname=' . getenv('PGDATABASE'),
    getenv('PGUSER'), getenv('PGPASSWORD'), [
        // Named prepared statements belong to one server session; behind pgbouncer the next one may be another.
        PDO::PGSQL_ATTR_DISABLE_PREPARES => (bool) getenv('POOLED'),
    ]);

function fetch(string $sql, array $parameters): ?array
{
    global $db;
    $statement = $db->prepare($sql);
    $statement->execute($parameters);
    return $statement->fetch(PDO::FETCH_ASSOC) ?: null;
}

function transaction(callable $work): array
{
    global $db;
    $db->beginTransaction();
    try {
        $result = $work();
        $db->commit();
        return $result;
    } catch (Throwable $error) {
        $db->rollBack();
        throw $error;
    }
}

function row(array $job): array
{
    return ['payload' => json_decode($job['payload']), 'tags' => json_decode($job['tags'])] + $job;
}

run(phpversion('pdo_pgsql'), [
    'insert' => fn ($in) => row(fetch(
        'insert into reactor.jobs (job_type, payload, tags) values (:job_type, :payload, :tags)
            returning id, pipeline_id, state, queue, payload, to_json(tags) as tags, created_at',
        ['job_type' => $in->job_type, 'payload' => json($in->payload), 'tags' => textArray($in->tags)])),

    'defaults' => fn ($in) => row(fetch(
        'insert into reactor.jobs (job_type) values (?)
            returning id, pipeline_id, state, queue, payload, to_json(tags) as tags, created_at', [$in->job_type])),

    'batch' => fn ($in) => transaction(function () use ($db, $in) {
        $insert = $db->prepare('insert into reactor.jobs (job_type, payload, tags, priority) values (?, ?, ?, ?)
            returning id');
        $ids = [];
        foreach ($in->jobs as $job) {
            $insert->execute([$job->job_type, json($job->payload), textArray($job->tags), $job->priority]);
            $ids[] = $insert->fetchColumn();
        }
        return ['count' => count($ids), 'ids' => $ids];
    }),

    'bind' => function ($in) use ($db) {
        $insert = $db->prepare(
            'insert into reactor.jobs (job_type, payload, tags, run_after, timeout_seconds, priority, max_attempts,
                queue, scope, exclusive, idempotency_key, pipeline_id)
            values (:job_type, :payload, :tags, :run_after, :timeout_seconds, :priority, :max_attempts,
                :queue, :scope, :exclusive, :idempotency_key, :pipeline_id) returning id');
        foreach (['job_type', 'timeout_seconds', 'queue', 'scope', 'idempotency_key', 'pipeline_id'] as $name) {
            $insert->bindValue($name, $in->$name);
        }
        $insert->bindValue('payload', json($in->payload));
        $insert->bindValue('tags', textArray($in->tags));
        $insert->bindValue('run_after', (new DateTimeImmutable($in->run_after))->format(DATE_RFC3339_EXTENDED));
        $insert->bindValue('priority', $in->priority, PDO::PARAM_INT);
        $insert->bindValue('max_attempts', $in->max_attempts, PDO::PARAM_INT);
        // execute([...]) would send false as '', which is not a boolean.
        $insert->bindValue('exclusive', $in->exclusive, PDO::PARAM_BOOL);
        $insert->execute();
        return ['id' => $insert->fetchColumn()];
    },

    'every_column' => function ($in) use ($db) {
        $columns = $db->query("select attname from pg_attribute where attrelid = 'reactor.jobs'::regclass
            and attnum > 0 and not attisdropped and attname <> 'id' order by attnum")->fetchAll(PDO::FETCH_COLUMN);
        $job = array_fill_keys($columns, null);
        $job['job_type'] = $in->job_type;
        $job['payload'] = json($in->payload);
        $job['created_at'] = date(DATE_RFC3339_EXTENDED);
        return fetch('insert into reactor.jobs (' . implode(', ', $columns) . ') values (:' . implode(', :', $columns)
            . ') returning id', $job);
    },

    'dag' => fn ($in) => transaction(function () use ($db, $in) {
        $ids = [];
        foreach ($in->jobs as $name => $job) {
            $ids[$name] = fetch('insert into reactor.jobs (job_type, pipeline_id) values (?, ?) returning id',
                [$job->job_type, $in->pipeline_id])['id'];
        }
        $edge = $db->prepare('insert into reactor.dependencies (job_id, depends_on, needs) values (?, ?, ?)');
        foreach ($in->dependencies as $dependency) {
            $edge->execute([$ids[$dependency->job], $ids[$dependency->depends_on], $dependency->needs ?? 'completed']);
        }
        return ['ids' => $ids];
    }),

    'submit' => function ($in) {
        $submit = fn () => fetch(
            'select id, outcome from reactor.submit(job_type => :job_type, payload => :payload,
                idempotency_key => :idempotency_key, tags => :tags, timeout_seconds => :timeout_seconds,
                max_attempts => :max_attempts, priority => :priority)',
            ['payload' => json($in->payload), 'tags' => textArray($in->tags)] + (array) $in);
        $results = [$submit(), $submit()];
        return ['ids' => array_column($results, 'id'), 'outcomes' => array_column($results, 'outcome')];
    },

    'conflict' => function ($in) use ($db) {
        $insert = $db->prepare('insert into reactor.jobs (job_type, idempotency_key) values (?, ?)');
        $insert->execute([$in->job_type, $in->idempotency_key]);
        $insert->execute([$in->job_type, $in->idempotency_key]);
        return [];
    },

    'ignore_conflict' => function ($in) use ($db) {
        $insert = $db->prepare(
            'insert into reactor.jobs (job_type, idempotency_key) values (?, ?) on conflict do nothing');
        $insert->execute([$in->job_type, $in->idempotency_key]);
        $insert->execute([$in->job_type, $in->idempotency_key]);
        return ['created' => $insert->rowCount()];
    },

    'rollback' => function ($in) use ($db) {
        $db->beginTransaction();
        try {
            $db->prepare('insert into reactor.jobs (job_type) values (?)')->execute([$in->job_type]);
        } finally {
            $db->rollBack();
        }
        return [];
    },

    'read_own' => function ($in) {
        $id = fetch('insert into reactor.jobs (job_type, payload) values (?, ?) returning id',
            [$in->job_type, json($in->payload)])['id'];
        $job = fetch('select * from reactor.jobs where id = ?', [$id]);
        $own = fetch('select count(*) from reactor.jobs where job_type = ? and state = ?', [$in->job_type, 'pending']);
        return ['payload' => json_decode($job['payload'])] + $own;
    },

    'foreign' => fn () => [
        'found' => fetch('select * from reactor.jobs where id = ?', [getenv('OTHERS_JOB')]) !== null],

    // In one transaction: a pooler may give the next one another session, which has no last id.
    'last_id' => fn ($in) => transaction(function () use ($db, $in) {
        $db->prepare('insert into reactor.jobs (job_type, payload) values (?, ?)')
            ->execute([$in->job_type, json($in->payload)]);
        return ['id' => (int) $db->lastInsertId()];
    }),
]);
