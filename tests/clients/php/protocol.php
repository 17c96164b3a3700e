<?php

// What the PHP clients of the conformance suite share: they read the scenarios and print one JSON line for each.

declare(strict_types=1);

require __DIR__ . '/text_array.php';

/** A jsonb parameter. Objects stay objects: json_encode([]) would be a list, which is refused as a payload. */
function json(array|object $value): string
{
    return json_encode($value, JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE);
}

/** ORMs wrap the error of PDO. */
function sqlState(?Throwable $error): ?string
{
    if ($error instanceof PDOException) {
        return $error->errorInfo[0] ?? null;
    }
    return $error === null ? null : sqlState($error->getPrevious());
}

/** @param array<string, callable(object): array> $scenarios */
function run(string $version, array $scenarios): void
{
    echo json(['version' => $version]), "\n";
    // Without `true` as the second argument: as arrays, {} and [] would be the same.
    $input = json_decode(file_get_contents($_SERVER['argv'][1]), flags: JSON_THROW_ON_ERROR);
    foreach ($scenarios as $name => $scenario) {
        try {
            $line = ['returned' => (object) $scenario($input->$name)];
        } catch (Throwable $error) {
            $line = ['error' => ['sqlstate' => sqlState($error), 'message' => $error->getMessage()]];
        }
        echo json(['scenario' => $name] + $line), "\n";
    }
}
