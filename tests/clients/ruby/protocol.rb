# frozen_string_literal: true

# What the Ruby clients of the conformance suite share: they read the scenarios and print one JSON line for each.

require "json"
require "pg"

def run(version, scenarios)
  puts JSON.generate({version: version})
  input = JSON.parse(File.read(ARGV.fetch(0), encoding: "UTF-8"))
  scenarios.each do |name, scenario|
    line = begin
      {returned: scenario.call(input.fetch(name.to_s))}
    rescue => error
      {error: describe(error)}
    end
    puts JSON.generate({scenario: name, **line})
  end
end

def describe(error)
  result = [error, error.cause].grep(PG::Error).first&.result
  return {message: error.message} unless result

  {
    sqlstate: result.error_field(PG::Result::PG_DIAG_SQLSTATE),
    constraint: result.error_field(PG::Result::PG_DIAG_CONSTRAINT_NAME),
    message: error.message
  }
end
