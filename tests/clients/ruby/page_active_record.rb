# frozen_string_literal: true

# The code of the section "Rails" of docs/clients/ruby.md. Nothing to build: ruby page_active_record.rb

require "active_record"

class Job < ActiveRecord::Base
  self.table_name = "reactor.jobs"

  enum state: %w[waiting pending running completed partial failed cancelled].to_h { |state| [state, state] }

  has_many :dependencies
  has_many :predecessors, through: :dependencies

  # Producers may not update or delete.
  def readonly?
    persisted?
  end

  def self.submit(job_type, payload = {}, idempotency_key: nil)
    find_by_sql(["select * from reactor.submit(?, ?, idempotency_key => ?)",
      job_type, payload.to_json, idempotency_key]).first
  end
end

class Dependency < ActiveRecord::Base
  self.table_name = "reactor.dependencies"
  # The key is (job_id, depends_on). From Rails 7.1 on: self.primary_key = %i[job_id depends_on]
  self.primary_key = nil

  belongs_to :job
  belongs_to :predecessor, class_name: "Job", foreign_key: :depends_on
end

ActiveRecord::Base.establish_connection(ENV["DATABASE_URL"])

job = Job.create!(job_type: "csv_ingest", payload: {file: "a.csv"}, tags: ["nightly"])
job.reload # `create!` sets the id only
puts "inserted #{job.id} #{job.state}"

jobs = Array.new(100) { |n| {job_type: "csv_ingest", payload: {file: "#{n}.csv"}} }
ids = Job.insert_all!(jobs, returning: %w[id]).rows.flatten
puts "batch #{ids.size}"

extract, load = Job.transaction do
  extract = Job.create!(job_type: "extract", pipeline_id: SecureRandom.uuid)
  load = Job.create!(job_type: "load", pipeline_id: extract.pipeline_id, predecessors: [extract])
  report = Job.create!(job_type: "report", pipeline_id: extract.pipeline_id)
  Dependency.create!(job: report, predecessor: load, needs: "finished")
  [extract, load]
end
puts "dag #{extract.id} #{load.id}"

2.times do
  job = Job.submit("csv_ingest", {file: "b.csv"}, idempotency_key: "upload-17")
  puts "#{job.outcome} #{job.id}" # created, then existing
end

ignored = Job.insert({job_type: "csv_ingest", idempotency_key: "upload-17"}, unique_by: %i[job_type idempotency_key])
puts "ignored #{ignored.length}" # 0: the key is taken

begin
  Job.create!(job_type: "csv_ingest", idempotency_key: "upload-17")
rescue ActiveRecord::RecordNotUnique
  puts "refused"
end

sleep 0.1 while %w[waiting pending running].include?(Job.find(load.id).state)
puts "end #{Job.find(load.id).state}"
