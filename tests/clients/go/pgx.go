// The conformance suite's client for pgx. Build it with the sources that Debian installs (pgx version 4):
// GOPATH=/usr/share/gocode GO111MODULE=off go build -o pgx pgx.go protocol.go

package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
	"github.com/jackc/pgx/v4/pgxpool"
)

const allOfRow = " returning id, pipeline_id, state, queue, tags, payload, created_at"

func scan(row pgx.Row) (job Row, err error) {
	err = row.Scan(&job.ID, &job.PipelineID, &job.State, &job.Queue, &job.Tags, &job.Payload, &job.CreatedAt)
	return job, err
}

func main() {
	ctx := context.Background()
	source := os.Getenv("DATABASE_URL") + "?sslmode=disable"
	if os.Getenv("POOLED") == "1" {
		// Without named prepared statements. In pgx version 5: default_query_exec_mode=cache_describe
		source += "&statement_cache_mode=describe"
	}
	db, err := pgxpool.Connect(ctx, source)
	check(err)
	defer db.Close()

	run("4", []scenario{
		{"insert", func(input json.RawMessage) (interface{}, error) {
			job := decode(input)
			return scan(db.QueryRow(ctx, "insert into reactor.jobs (job_type, payload, tags) values ($1, $2, $3)"+allOfRow,
				job.JobType, job.Payload, job.Tags))
		}},
		{"defaults", func(input json.RawMessage) (interface{}, error) {
			return scan(db.QueryRow(ctx, "insert into reactor.jobs (job_type) values ($1)"+allOfRow, decode(input).JobType))
		}},
		{"batch", func(input json.RawMessage) (interface{}, error) {
			var given struct{ Jobs []Job }
			check(json.Unmarshal(input, &given))
			// The view: PostgreSQL refuses COPY into tables with row-level security.
			count, err := db.CopyFrom(ctx, pgx.Identifier{"reactor", "new_jobs"},
				[]string{"job_type", "payload", "tags", "priority"},
				pgx.CopyFromSlice(len(given.Jobs), func(n int) ([]interface{}, error) {
					job := given.Jobs[n]
					return []interface{}{job.JobType, job.Payload, job.Tags, job.Priority}, nil
				}))
			return returned{"count": count}, err
		}},
		{"bind", func(input json.RawMessage) (interface{}, error) {
			job := decode(input)
			var id int64
			err := db.QueryRow(ctx, `insert into reactor.jobs (job_type, payload, tags, run_after, timeout_seconds,
				priority, max_attempts, queue, scope, exclusive, idempotency_key, pipeline_id)
				values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) returning id`,
				job.JobType, job.Payload, job.Tags, job.RunAfter, job.TimeoutSeconds,
				job.Priority, job.MaxAttempts, job.Queue, job.Scope, job.Exclusive, job.IdempotencyKey, job.PipelineID).Scan(&id)
			return returned{"id": id}, err
		}},
		{"every_column", func(input json.RawMessage) (interface{}, error) {
			job := decode(input)
			rows, err := db.Query(ctx, "select * from reactor.jobs limit 0")
			if err != nil {
				return nil, err
			}
			fields := rows.FieldDescriptions()
			rows.Close()
			set := map[string]interface{}{"job_type": job.JobType, "payload": job.Payload, "created_at": time.Now()}
			var columns []string
			var values []interface{}
			for _, field := range fields {
				if column := string(field.Name); column != "id" {
					columns = append(columns, column)
					values = append(values, set[column])
				}
			}
			var id int64
			err = db.QueryRow(ctx, "insert into reactor.jobs ("+strings.Join(columns, ", ")+") values "+
				placeholders(1, len(columns))+" returning id", values...).Scan(&id)
			return returned{"id": id}, err
		}},
		{"dag", func(input json.RawMessage) (interface{}, error) {
			var graph Graph
			check(json.Unmarshal(input, &graph))
			ids := map[string]int64{}
			err := db.BeginFunc(ctx, func(tx pgx.Tx) error {
				for name, job := range graph.Jobs {
					var id int64
					err := tx.QueryRow(ctx, "insert into reactor.jobs (job_type, pipeline_id) values ($1, $2) returning id",
						job.JobType, graph.PipelineID).Scan(&id)
					if err != nil {
						return err
					}
					ids[name] = id
				}
				edges := &pgx.Batch{}
				for _, edge := range graph.Dependencies {
					// A nil pointer is NULL, which takes the column's default.
					edges.Queue("insert into reactor.dependencies (job_id, depends_on, needs) values ($1, $2, $3)",
						ids[edge.Job], ids[edge.DependsOn], edge.Needs)
				}
				return tx.SendBatch(ctx, edges).Close()
			})
			return returned{"ids": ids}, err
		}},
		{"submit", func(input json.RawMessage) (interface{}, error) {
			job := decode(input)
			var ids [2]int64
			var outcomes [2]string
			for n := range ids {
				err := db.QueryRow(ctx, `select id, outcome from reactor.submit(job_type => $1, payload => $2,
					idempotency_key => $3, tags => $4, timeout_seconds => $5, max_attempts => $6, priority => $7)`,
					job.JobType, job.Payload, job.IdempotencyKey, job.Tags, job.TimeoutSeconds,
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
			if _, err := db.Exec(ctx, insert, job.JobType, job.IdempotencyKey); err != nil {
				return nil, err
			}
			return db.Exec(ctx, insert, job.JobType, job.IdempotencyKey)
		}},
		{"ignore_conflict", func(input json.RawMessage) (interface{}, error) {
			job := decode(input)
			insert := "insert into reactor.jobs (job_type, idempotency_key) values ($1, $2) on conflict do nothing"
			if _, err := db.Exec(ctx, insert, job.JobType, job.IdempotencyKey); err != nil {
				return nil, err
			}
			result, err := db.Exec(ctx, insert, job.JobType, job.IdempotencyKey)
			return returned{"created": result.RowsAffected()}, err
		}},
		{"rollback", func(input json.RawMessage) (interface{}, error) {
			tx, err := db.Begin(ctx)
			if err != nil {
				return nil, err
			}
			_, err = tx.Exec(ctx, "insert into reactor.jobs (job_type) values ($1)", decode(input).JobType)
			tx.Rollback(ctx)
			return returned{}, err
		}},
		{"read_own", func(input json.RawMessage) (interface{}, error) {
			job := decode(input)
			inserted, err := scan(db.QueryRow(ctx, "insert into reactor.jobs (job_type, payload) values ($1, $2)"+allOfRow,
				job.JobType, job.Payload))
			if err != nil {
				return nil, err
			}
			found, err := scan(db.QueryRow(ctx, "select id, pipeline_id, state, queue, tags, payload, created_at "+
				"from reactor.jobs where id = $1", inserted.ID))
			if err != nil {
				return nil, err
			}
			var count int
			err = db.QueryRow(ctx, "select count(*) from reactor.jobs where job_type = $1 and state = 'pending'",
				job.JobType).Scan(&count)
			return returned{"payload": found.Payload, "count": count}, err
		}},
		{"foreign", func(json.RawMessage) (interface{}, error) {
			id, err := strconv.ParseInt(os.Getenv("OTHERS_JOB"), 10, 64)
			check(err)
			rows, err := db.Query(ctx, "select * from reactor.jobs where id = $1", id)
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
			err := db.BeginFunc(ctx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "insert into reactor.jobs (job_type, payload) values ($1, $2)", job.JobType, job.Payload)
				if err != nil {
					return err
				}
				return tx.QueryRow(ctx, "select lastval()").Scan(&id)
			})
			return returned{"id": id}, err
		}},
	}, func(err error) returned {
		var refusal *pgconn.PgError
		if errors.As(err, &refusal) {
			return returned{"sqlstate": refusal.Code, "constraint": refusal.ConstraintName, "message": refusal.Message}
		}
		return returned{"message": err.Error()}
	})
}
