# frozen_string_literal: true

# The conformance suite's client for ActiveRecord, the ORM of Rails. Nothing to build:
# ruby active_record.rb scenarios.json

require_relative "protocol"
require "active_record"

class Job < ActiveRecord::Base
  self.table_name = "reactor.jobs"
end

class Dependency < ActiveRecord::Base
  self.table_name = "reactor.dependencies"
  # The key is (job_id, depends_on). From Rails 7.1 on: self.primary_key = %i[job_id depends_on]
  self.primary_key = nil

  belongs_to :job
end

# Writes every column in each insert, as Rails does from version 7 on unless partial_inserts is set.
class WholeJob < ActiveRecord::Base
  self.table_name = "reactor.jobs"
  self.partial_writes = false
end

ActiveRecord::Base.establish_connection(
  adapter: "postgresql", url: ENV.fetch("DATABASE_URL"),
  # Named prepared statements belong to one server session; behind pgbouncer the next one may be another.
  prepared_statements: ENV["POOLED"] != "1"
)

def row(job)
  # `create!` sets the id; reload reads what the database filled in.
  job.reload.slice(:id, :pipeline_id, :state, :queue, :tags, :payload, :created_at)
end

run(
  ActiveRecord.version.to_s,
  insert: ->(input) { row(Job.create!(input)) },
  defaults: ->(input) { row(Job.create!(input)) },
  batch: lambda do |input|
    result = Job.insert_all!(input["jobs"], returning: %w[id])
    {count: result.length, ids: result.rows.flatten}
  end,
  bind: ->(input) { {id: Job.create!(input.merge("run_after" => Time.iso8601(input["run_after"]))).id} },
  every_column: ->(input) { {id: WholeJob.create!(input).id} },
  dag: lambda do |input|
    ids = Job.transaction do
      jobs = input["jobs"].transform_values { |job| Job.create!(job.merge(pipeline_id: input["pipeline_id"])) }
      input["dependencies"].each do |edge|
        Dependency.create!(job: jobs[edge["job"]], depends_on: jobs[edge["depends_on"]].id,
          **edge.slice("needs").symbolize_keys)
      end
      jobs.transform_values(&:id)
    end
    {ids: ids}
  end,
  submit: lambda do |input|
    results = Array.new(2) do
      Job.find_by_sql([<<~SQL, {**input.symbolize_keys, payload: input["payload"].to_json}]).first
        select id, outcome from reactor.submit(job_type => :job_type, payload => :payload,
          idempotency_key => :idempotency_key, tags => array[:tags], timeout_seconds => :timeout_seconds,
          max_attempts => :max_attempts, priority => :priority)
      SQL
    end
    {ids: results.map(&:id), outcomes: results.map(&:outcome)}
  end,
  conflict: ->(input) { 2.times { Job.create!(input) } },
  ignore_conflict: lambda do |input|
    Job.insert(input)
    {created: Job.insert(input).length}
  end,
  rollback: lambda do |input|
    Job.transaction do
      Job.create!(input)
      raise ActiveRecord::Rollback
    end
    {}
  end,
  read_own: lambda do |input|
    job = Job.find(Job.create!(input).id)
    {payload: job.payload, count: Job.where(job_type: input["job_type"], state: "pending").count}
  end,
  foreign: ->(_) { {found: !Job.find_by(id: ENV.fetch("OTHERS_JOB")).nil?} },
  last_id: lambda do |input|
    job = Job.new(input)
    job.save!
    {id: job.id}
  end
)
