# frozen_string_literal: true

# The conformance suite's client for the gem pg. Nothing to build: ruby pg.rb scenarios.json

require_relative "protocol"
require "time"

# The connection is described by PGHOST, PGUSER, ...; exec_params names no prepared statement, so that pgbouncer needs
# nothing special.
DB = PG.connect
# Integers, floats, times and arrays are sent with their types, and rows arrive as Ruby's; types that pg does not know
# (uuid) as strings.
DB.type_map_for_queries = PG::BasicTypeMapForQueries.new(DB)
DB.type_map_for_results = PG::BasicTypeMapForResults.new(DB).tap do |map|
  map.default_type_map = PG::TypeMapAllStrings.new
end

ROW = "id, pipeline_id, state, queue, tags, payload, created_at"

def placeholders(columns)
  (1..columns.size).map { |n| "$#{n}" }.join(", ")
end

def insert(job, returning: "id")
  values = job.map { |column, value| (column == "payload") ? JSON.generate(value) : value }
  DB.exec_params("insert into reactor.jobs (#{job.keys.join(", ")}) values (#{placeholders(values)}) " \
    "returning #{returning}", values).first
end

run(
  PG::VERSION,
  insert: ->(input) { insert(input, returning: ROW) },
  defaults: ->(input) { insert(input, returning: ROW) },
  batch: lambda do |input|
    rows = input["jobs"].map { |job| [job["job_type"], JSON.generate(job["payload"]), job["tags"], job["priority"]] }
    values = (0...rows.size).map { |row| "($#{4 * row + 1}, $#{4 * row + 2}, $#{4 * row + 3}, $#{4 * row + 4})" }
    result = DB.exec_params("insert into reactor.jobs (job_type, payload, tags, priority) " \
      "values #{values.join(", ")} returning id", rows.flatten(1))
    {count: result.ntuples, ids: result.column_values(0)}
  end,
  bind: ->(input) { insert(input.merge("run_after" => Time.iso8601(input["run_after"]))) },
  every_column: lambda do |input|
    columns = DB.exec("select * from reactor.jobs limit 0").fields - ["id"]
    job = columns.to_h { |column| [column, nil] }.merge(input, "created_at" => Time.now)
    insert(job)
  end,
  dag: lambda do |input|
    ids = DB.transaction do
      ids = input["jobs"].transform_values do |job|
        insert(job.merge("pipeline_id" => input["pipeline_id"]))["id"]
      end
      input["dependencies"].each do |edge|
        DB.exec_params("insert into reactor.dependencies (job_id, depends_on, needs) values ($1, $2, $3)",
          [ids[edge["job"]], ids[edge["depends_on"]], edge.fetch("needs", "completed")])
      end
      ids
    end
    {ids: ids}
  end,
  submit: lambda do |input|
    parameters = [input["job_type"], JSON.generate(input["payload"]),
      *input.values_at("idempotency_key", "tags", "timeout_seconds", "max_attempts", "priority")]
    results = Array.new(2) do
      DB.exec_params(<<~SQL, parameters).first
        select id, outcome from reactor.submit(job_type => $1, payload => $2, idempotency_key => $3, tags => $4,
          timeout_seconds => $5, max_attempts => $6, priority => $7)
      SQL
    end
    {ids: results.map { |row| row["id"] }, outcomes: results.map { |row| row["outcome"] }}
  end,
  conflict: ->(input) { 2.times { insert(input) } },
  ignore_conflict: lambda do |input|
    results = Array.new(2) do
      DB.exec_params("insert into reactor.jobs (job_type, idempotency_key) values ($1, $2) on conflict do nothing",
        [input["job_type"], input["idempotency_key"]])
    end
    {created: results.last.cmd_tuples}
  end,
  rollback: lambda do |input|
    # Any exception rolls the block back (and PG::RollbackTransaction silently, from pg 1.5 on).
    DB.transaction do
      insert(input)
      raise StopIteration
    end
  rescue StopIteration
    {}
  end,
  read_own: lambda do |input|
    id = insert(input)["id"]
    job = DB.exec_params("select * from reactor.jobs where id = $1", [id]).first
    own = DB.exec_params("select count(*) from reactor.jobs where job_type = $1 and state = 'pending'",
      [input["job_type"]])
    {payload: job["payload"], count: own.getvalue(0, 0)}
  end,
  foreign: lambda do |_|
    {found: DB.exec_params("select * from reactor.jobs where id = $1", [ENV.fetch("OTHERS_JOB").to_i]).any?}
  end,
  last_id: lambda do |input|
    # In one transaction: a pooler may give the next one another session, which has no last id.
    id = DB.transaction do
      DB.exec_params("insert into reactor.jobs (job_type, payload) values ($1, $2)",
        [input["job_type"], JSON.generate(input["payload"])])
      DB.exec("select lastval()").getvalue(0, 0)
    end
    {id: id}
  end
)
