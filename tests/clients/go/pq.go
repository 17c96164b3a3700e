// The conformance suite's client for database/sql with lib/pq. Build it with the sources that Debian installs:
// GOPATH=/usr/share/gocode GO111MODULE=off go build -o pq pq.go protocol.go

package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/lib/pq"
)

const allOfRow = " returning id, pipeline_id, state, queue, tags, payload, created_at"

func scan(row *sql.Row) (job Row, err error) {
	err = row.Scan(&job.ID, &job.PipelineID, &job.State, &job.Queue, pq.Array(&job.Tags), &job.Payload, &job.CreatedAt)
	return job, err
}

func transaction(db *sql.DB, work func(tx *sql.Tx) error) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback() // without effect after the commit
	if err := work(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func main() {
	source := os.Getenv("DATABASE_URL") + "?sslmode=disable"
	if os.Getenv("POOLED") == "1" {
		// One round trip per query: otherwise pgbouncer may send its two halves to different sessions.
		source += "&binary_parameters=yes"
	}
	db, err := sql.Open("postgres", source)
	check(err)
	defer db.Close()

	run("1", []scenario{
		{"insert", func(input json.RawMessage) (interface{}, error) {
			job := decode(input)
			// JSON as a string: lib/pq sends a []byte as bytea.
			return scan(db.QueryRow("insert into reactor.jobs (job_type, payload, tags) values ($1, $2, $3)"+allOfRow,
				job.JobType, string(job.Payload), pq.Array(job.Tags)))
		}},
		{"defaults", func(input json.RawMessage) (interface{}, error) {
			return scan(db.QueryRow("insert into reactor.jobs (job_type) values ($1)"+allOfRow, decode(input).JobType))
		}},
		{"batch", func(input json.RawMessage) (interface{}, error) {
			var batch struct{ Jobs []Job }
			check(json.Unmarshal(input, &batch))
			err := transaction(db, func(tx *sql.Tx) error {
				// The view: PostgreSQL refuses COPY into tables with row-level security.
				copy, err := tx.Prepare(pq.CopyInSchema("reactor", "new_jobs", "job_type", "payload", "tags", "priority"))
				if err != nil {
					return err
				}
				for _, job := range batch.Jobs {
					_, err := copy.Exec(job.JobType, string(job.Payload), pq.Array(job.Tags), job.Priority)
					if err != nil {
						return err
					}
				}
				if _, err := copy.Exec(); err != nil {
					return err
				}
				return copy.Close()
			})
			return returned{"count": len(batch.Jobs)}, err
		}},
		{"bind", func(input json.RawMessage) (interface{}, error) {
			job := decode(input)
			var id int64
			err := db.QueryRow(`insert into reactor.jobs (job_type, payload, tags, run_after, timeout_seconds, priority,
				max_attempts, queue, scope, exclusive, idempotency_key, pipeline_id)
				values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) returning id`,
				job.JobType, string(job.Payload), pq.Array(job.Tags), job.RunAfter, job.TimeoutSeconds, job.Priority,
				job.MaxAttempts, job.Queue, job.Scope, job.Exclusive, job.IdempotencyKey, job.PipelineID).Scan(&id)
			return returned{"id": id}, err
		}},
		{"every_column", func(input json.RawMessage) (interface{}, error) {
			job := decode(input)
			rows, err := db.Query("select * from reactor.jobs limit 0")
			if err != nil {
				return nil, err
			}
			all, err := rows.Columns()
			rows.Close()
			if err != nil {
				return nil, err
			}
			set := map[string]interface{}{
				"job_type": job.JobType, "payload": string(job.Payload), "created_at": time.Now()}
			var columns []string
			var values []interface{}
			for _, column := range all {
				if column != "id" {
					columns = append(columns, column)
					values = append(values, set[column])
				}
			}
			var id int64
			err = db.QueryRow("insert into reactor.jobs ("+strings.Join(columns, ", ")+") values "+
				placeholders(1, len(columns))+" returning id", values...).Scan(&id)
			return returned{"id": id}, err
		}},
		{"dag", func(input json.RawMessage) (interface{}, error) {
			var graph Graph
			check(json.Unmarshal(input, &graph))
			ids := map[string]int64{}
			err := transaction(db, func(tx *sql.Tx) error {
				for name, job := range graph.Jobs {
					var id int64
					err := tx.QueryRow("insert into reactor.jobs (job_type, pipeline_id) values ($1, $2) returning id",
						job.JobType, graph.PipelineID).Scan(&id)
					if err != nil {
						return err
					}
					ids[name] = id
				}
				for _, edge := range graph.Dependencies {
					// A nil pointer is NULL, which takes the column's default.
					_, err := tx.Exec("insert into reactor.dependencies (job_id, depends_on, needs) values ($1, $2, $3)",
						ids[edge.Job], ids[edge.DependsOn], edge.Needs)
					if err != nil {
						return err
					}
				}
				return nil
			})
			return returned{"ids": ids}, err
		}},
		{"submit", func(input json.RawMessage) (interface{}, error) {
			job := decode(input)
			var ids [2]int64
			var outcomes [2]string
			for n := range ids {
				err := db.QueryRow(`select id, outcome from reactor.submit(job_type => $1, payload => $2,
					idempotency_key => $3, tags => $4, timeout_seconds => $5, max_attempts => $6, priority => $7)`,
					job.JobType, string(job.Payload), job.IdempotencyKey, pq.Array(job.Tags), job.TimeoutSeconds,
					job.MaxAttempts, job.Priority).Scan(&ids[n], &outcomes[n])
				if err != nil {
					return nil, err
				}
			}
			return returned{"ids": ids, "outcomes": outcomes}, nil
		}},
		{"conflict", func(input json.RawMessage) (interface{}, error) {
			job := decode(input)
			insert := "insert into reactor.jobs (job_type, idempotency_key) values ($1, $2)"
			if _, err := db.Exec(insert, job.JobType, job.IdempotencyKey); err != nil {
				return nil, err
			}
			return db.Exec(insert, job.JobType, job.IdempotencyKey)
		}},
		{"ignore_conflict", func(input json.RawMessage) (interface{}, error) {
			job := decode(input)
			insert := "insert into reactor.jobs (job_type, idempotency_key) values ($1, $2) on conflict do nothing"
			if _, err := db.Exec(insert, job.JobType, job.IdempotencyKey); err != nil {
				return nil, err
			}
			result, err := db.Exec(insert, job.JobType, job.IdempotencyKey)
			if err != nil {
				return nil, err
			}
			created, err := result.RowsAffected()
			return returned{"created": created}, err
		}},
		{"rollback", func(input json.RawMessage) (interface{}, error) {
			tx, err := db.Begin()
			if err != nil {
				return nil, err
			}
			_, err = tx.Exec("insert into reactor.jobs (job_type) values ($1)", decode(input).JobType)
			tx.Rollback()
			return returned{}, err
		}},
		{"read_own", func(input json.RawMessage) (interface{}, error) {
			job := decode(input)
			inserted, err := scan(db.QueryRow("insert into reactor.jobs (job_type, payload) values ($1, $2)"+allOfRow,
				job.JobType, string(job.Payload)))
			if err != nil {
				return nil, err
			}
			found, err := scan(db.QueryRow("select id, pipeline_id, state, queue, tags, payload, created_at "+
				"from reactor.jobs where id = $1", inserted.ID))
			if err != nil {
				return nil, err
			}
			var count int
			err = db.QueryRow("select count(*) from reactor.jobs where job_type = $1 and state = 'pending'",
				job.JobType).Scan(&count)
			return returned{"payload": found.Payload, "count": count}, err
		}},
		{"foreign", func(json.RawMessage) (interface{}, error) {
			rows, err := db.Query("select * from reactor.jobs where id = $1", os.Getenv("OTHERS_JOB"))
			if err != nil {
				return nil, err
			}
			defer rows.Close()
			return returned{"found": rows.Next()}, rows.Err()
		}},
		{"last_id", func(input json.RawMessage) (interface{}, error) {
			job := decode(input)
			var id int64
			// In one transaction: the next query may use another connection, which has no last id.
			err := transaction(db, func(tx *sql.Tx) error {
				_, err := tx.Exec("insert into reactor.jobs (job_type, payload) values ($1, $2)",
					job.JobType, string(job.Payload))
				if err != nil {
					return err
				}
				return tx.QueryRow("select lastval()").Scan(&id)
			})
			return returned{"id": id}, err
		}},
	}, func(err error) returned {
		var refusal *pq.Error
		if errors.As(err, &refusal) {
			return returned{"sqlstate": refusal.Code, "constraint": refusal.Constraint, "message": refusal.Message}
		}
		return returned{"message": err.Error()}
	})
}
