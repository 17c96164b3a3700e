<?php

// The code of the section "PDO" of docs/clients/php.md. Nothing to build: php page_pdo.php

declare(strict_types=1);

$db = new PDO('pgsql:host=' . getenv('PGHOST') . ';port=' . getenv('PGPORT') . ';dbname=' . getenv('PGDATABASE'),
    getenv('PGUSER'), getenv('PGPASSWORD'));

$insert = $db->prepare('insert into reactor.jobs (job_type, payload, tags) values (?, ?, ?)
    returning id, pipeline_id, state');
$insert->execute(['csv_ingest', json_encode(['file' => 'a.csv']), '{nightly,"two words"}']);
$job = $insert->fetch(PDO::FETCH_ASSOC);
echo "inserted {$job['id']} {$job['state']}\n";

$jobs = array_map(fn ($n) => ['job_type' => 'csv_ingest', 'payload' => ['file' => "$n.csv"], 'tags' => ['nightly']],
    range(1, 100));
$many = $db->prepare('select id from reactor.submit_many(?)');
$many->execute([json_encode($jobs)]);
echo 'batch ', count($many->fetchAll(PDO::FETCH_COLUMN)), "\n";

$db->beginTransaction();
try {
    $insert = $db->prepare('insert into reactor.jobs (job_type, pipeline_id) values (?, ?) returning id, pipeline_id');
    $insert->execute(['extract', null]);
    $extract = $insert->fetch(PDO::FETCH_ASSOC);
    $insert->execute(['load', $extract['pipeline_id']]);
    $load = $insert->fetch(PDO::FETCH_ASSOC);
    $db->prepare('insert into reactor.dependencies (job_id, depends_on) values (?, ?)')
        ->execute([$load['id'], $extract['id']]);
    $db->commit();
} catch (Throwable $error) {
    $db->rollBack();
    throw $error;
}
echo "dag {$extract['id']} {$load['id']}\n";

$submit = $db->prepare('select * from reactor.submit(:job_type, :payload, idempotency_key => :key)');
for ($n = 0; $n < 2; $n++) {
    $submit->execute(['job_type' => 'csv_ingest', 'payload' => json_encode(['file' => 'b.csv']), 'key' => 'upload-17']);
    $job = $submit->fetch(PDO::FETCH_ASSOC);
    echo "{$job['outcome']} {$job['id']}\n"; // created, then existing
}

// With a token: ['http' => ['header' => "Authorization: Bearer $token", 'timeout' => 60]]
$context = stream_context_create(['http' => ['timeout' => 60]]);
$stream = fopen(getenv('REACTOR_URL') . "/v1/pipelines/{$load['pipeline_id']}/events", 'r', context: $context);
while (($line = fgets($stream)) !== false) {
    if (str_starts_with($line, 'event: ')) {
        $event = trim(substr($line, 7));
    } elseif (str_starts_with($line, 'data: ')) {
        $data = json_decode(substr($line, 6));
        echo $event, ' ', $data->state ?? '', "\n"; // snapshot, then job, step and pipeline; at last "end completed"
    }
}
