# frozen_string_literal: true

# The code of the section "pg" of docs/clients/ruby.md. Nothing to build: ruby page_pg.rb

require "json"
require "net/http"
require "pg"

db = PG.connect # PGHOST, PGUSER, ... or PG.connect(ENV["DATABASE_URL"])
# Ruby's integers, floats and arrays as parameters; rows with Ruby's types, uuid as a string.
db.type_map_for_queries = PG::BasicTypeMapForQueries.new(db)
db.type_map_for_results = PG::BasicTypeMapForResults.new(db)
db.type_map_for_results.default_type_map = PG::TypeMapAllStrings.new

job = db.exec_params(
  "insert into reactor.jobs (job_type, payload, tags) values ($1, $2, $3) returning *",
  ["csv_ingest", {file: "a.csv"}.to_json, ["nightly"]]
).first
puts "inserted #{job["id"]} #{job["state"]}"

jobs = Array.new(100) { |n| {job_type: "csv_ingest", payload: {file: "#{n}.csv"}} }
ids = db.exec_params("select id from reactor.submit_many($1)", [jobs.to_json]).column_values(0)
puts "batch #{ids.size}"

extract, load = db.transaction do
  insert = "insert into reactor.jobs (job_type, pipeline_id) values ($1, $2) returning id, pipeline_id"
  extract = db.exec_params(insert, ["extract", nil]).first
  load = db.exec_params(insert, ["load", extract["pipeline_id"]]).first
  db.exec_params("insert into reactor.dependencies (job_id, depends_on) values ($1, $2)", [load["id"], extract["id"]])
  [extract, load]
end
puts "dag #{extract["id"]} #{load["id"]}"

2.times do
  job = db.exec_params(
    "select * from reactor.submit($1, $2, idempotency_key => $3)",
    ["csv_ingest", {file: "b.csv"}.to_json, "upload-17"]
  ).first
  puts "#{job["outcome"]} #{job["id"]}" # created, then existing
end

# Calls the block with each event until the server closes the stream.
def each_event(address, token: nil)
  uri = URI(address)
  Net::HTTP.start(uri.host, uri.port, use_ssl: uri.scheme == "https", read_timeout: 60) do |http|
    request = Net::HTTP::Get.new(uri)
    request["Authorization"] = "Bearer #{token}" if token
    http.request(request) do |response|
      response.value # raises unless the status is 2xx
      received = String.new
      response.read_body do |chunk|
        received << chunk
        while (lines = received.slice!(/\A.*?\n\n/m))
          event = lines.lines(chomp: true).to_h { |line| line.partition(": ").values_at(0, 2) }
          yield event["event"], JSON.parse(event["data"]) if event["event"]
        end
      end
    end
  end
end

each_event("#{ENV["REACTOR_URL"]}/v1/pipelines/#{load["pipeline_id"]}/events") do |name, data|
  puts "#{name} #{data["state"]}" # snapshot, then job, step and pipeline; at last "end completed"
end
