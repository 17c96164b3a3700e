// What the Go clients of the conformance suite share: they read the scenarios and print one JSON line for each.

package main

import (
	"encoding/json"
	"log"
	"os"
	"strconv"
	"strings"
	"time"
)

// Job has the columns that a producer writes. Pointers are NULL, or the column's default, when nil.
type Job struct {
	JobType        string          `json:"job_type"`
	Payload        json.RawMessage `json:"payload"`
	Tags           []string        `json:"tags"`
	RunAfter       *time.Time      `json:"run_after"`
	TimeoutSeconds *float64        `json:"timeout_seconds"`
	Priority       *int            `json:"priority"`
	MaxAttempts    *int            `json:"max_attempts"`
	Queue          *string         `json:"queue"`
	Scope          *string         `json:"scope"`
	Exclusive      bool            `json:"exclusive"`
	IdempotencyKey *string         `json:"idempotency_key"`
	PipelineID     *string         `json:"pipeline_id"`
}

// Graph is the input of the scenario dag.
type Graph struct {
	PipelineID   string         `json:"pipeline_id"`
	Jobs         map[string]Job `json:"jobs"`
	Dependencies []struct {
		Job       string  `json:"job"`
		DependsOn string  `json:"depends_on"`
		Needs     *string `json:"needs"`
	} `json:"dependencies"`
}

// Row is what the scenarios insert and defaults return.
type Row struct {
	ID         int64           `json:"id"`
	PipelineID string          `json:"pipeline_id"`
	State      string          `json:"state"`
	Queue      string          `json:"queue"`
	Tags       []string        `json:"tags"`
	Payload    json.RawMessage `json:"payload"`
	CreatedAt  time.Time       `json:"created_at"`
}

type returned map[string]interface{}

type scenario struct {
	name string
	run  func(input json.RawMessage) (interface{}, error)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func decode(input json.RawMessage) (job Job) {
	check(json.Unmarshal(input, &job))
	return job
}

// placeholders returns ($1, $2), ($3, $4), ... for rows of so many columns.
func placeholders(rows, columns int) string {
	groups := make([]string, rows)
	for row := range groups {
		names := make([]string, columns)
		for column := range names {
			names[column] = "$" + strconv.Itoa(row*columns+column+1)
		}
		groups[row] = "(" + strings.Join(names, ", ") + ")"
	}
	return strings.Join(groups, ", ")
}

func run(version string, scenarios []scenario, describe func(error) returned) {
	text, err := os.ReadFile(os.Args[1])
	check(err)
	var inputs map[string]json.RawMessage
	check(json.Unmarshal(text, &inputs))
	output := json.NewEncoder(os.Stdout)
	check(output.Encode(returned{"version": version}))
	for _, s := range scenarios {
		line := returned{"scenario": s.name}
		if result, err := s.run(inputs[s.name]); err != nil {
			line["error"] = describe(err)
		} else {
			line["returned"] = result
		}
		check(output.Encode(line))
	}
}
