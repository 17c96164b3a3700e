// The code of the section "pgx" of docs/clients/go.md. Build it with the sources that Debian installs (pgx version 4):
// GOPATH=/usr/share/gocode GO111MODULE=off go run page.go

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgx/v4"
	"github.com/jackc/pgx/v4/pgxpool"
)

func main() {
	ctx := context.Background()
	db, err := pgxpool.Connect(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := work(ctx, db); err != nil {
		log.Fatal(err)
	}
}

func work(ctx context.Context, db *pgxpool.Pool) error {
	var id int64
	var state string
	err := db.QueryRow(ctx, `insert into reactor.jobs (job_type, payload, tags) values ($1, $2, $3)
		returning id, state`, "csv_ingest", map[string]string{"file": "a.csv"}, []string{"nightly"}).Scan(&id, &state)
	if err != nil {
		return err
	}
	fmt.Println("inserted", id, state)

	// One round trip, and one transaction.
	batch := &pgx.Batch{}
	for n := 0; n < 100; n++ {
		payload := map[string]string{"file": fmt.Sprint(n, ".csv")}
		batch.Queue("insert into reactor.jobs (job_type, payload) values ($1, $2)", "csv_ingest", payload)
	}
	if err := db.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	fmt.Println("batch", batch.Len())

	_, err = db.CopyFrom(ctx, pgx.Identifier{"reactor", "new_jobs"}, []string{"job_type", "payload"},
		pgx.CopyFromRows([][]interface{}{
			{"csv_ingest", map[string]string{"file": "c.csv"}},
			{"csv_ingest", map[string]string{"file": "d.csv"}},
		}))
	if err != nil {
		return err
	}

	var pipeline string
	err = db.BeginFunc(ctx, func(tx pgx.Tx) error {
		var extract, load int64
		err := tx.QueryRow(ctx, "insert into reactor.jobs (job_type) values ('extract') returning id, pipeline_id").
			Scan(&extract, &pipeline)
		if err != nil {
			return err
		}
		err = tx.QueryRow(ctx, "insert into reactor.jobs (job_type, pipeline_id) values ('load', $1) returning id",
			pipeline).Scan(&load)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "insert into reactor.dependencies (job_id, depends_on) values ($1, $2)", load, extract)
		return err
	})
	if err != nil {
		return err
	}
	fmt.Println("dag", pipeline)

	for n := 0; n < 2; n++ {
		var outcome string
		err := db.QueryRow(ctx, "select id, outcome from reactor.submit($1, $2, idempotency_key => $3)",
			"csv_ingest", map[string]string{"file": "b.csv"}, "upload-17").Scan(&id, &outcome)
		if err != nil {
			return err
		}
		fmt.Println(outcome, id) // created, then existing
	}

	_, err = db.Exec(ctx, "insert into reactor.jobs (job_type, idempotency_key) values ('csv_ingest', 'upload-17')")
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) {
		fmt.Println("refused", refusal.Code, refusal.ConstraintName) // 23505 jobs_idempotency_key_is_taken
	}

	return follow(ctx, os.Getenv("REACTOR_URL")+"/v1/pipelines/"+pipeline+"/events")
}

// follow prints the events of a stream until the server closes it.
func follow(ctx context.Context, address string) error {
	request, err := http.NewRequestWithContext(ctx, "GET", address, nil)
	if err != nil {
		return err
	}
	if token := os.Getenv("REACTOR_TOKEN"); token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", address, response.Status)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 16<<20) // a snapshot is one line
	var event string
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "event":
			event = value
		case "data":
			var data struct{ State string }
			if err := json.Unmarshal([]byte(value), &data); err != nil {
				return err
			}
			fmt.Println(event, data.State) // snapshot, then job, step and pipeline; at last "end completed"
		}
	}
	return lines.Err()
}
