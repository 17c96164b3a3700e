<?php

// A PostgreSQL array of texts as PHP's array: neither PDO nor the ORMs know it.

declare(strict_types=1);

function textArray(array $texts): string
{
    return '{' . implode(',', array_map(fn ($text) => '"' . addcslashes($text, '"\\') . '"', $texts)) . '}';
}

function fromTextArray(string $literal): array
{
    preg_match_all('/"((?:[^"\\\\]|\\\\.)*)"|([^{},]+)/', $literal, $matches, PREG_SET_ORDER);
    return array_map(fn ($match) => $match[2] ?? stripslashes($match[1]), $matches);
}
