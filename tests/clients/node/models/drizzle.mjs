import { sql } from "drizzle-orm";
import { bigint, boolean, integer, jsonb, pgSchema, primaryKey, real, smallint } from "drizzle-orm/pg-core";
import { text, timestamp, uuid } from "drizzle-orm/pg-core";

export const reactor = pgSchema("reactor");

// Drizzle writes DEFAULT for columns that are not set: `default` only makes them optional for TypeScript.
export const jobColumns = {
  id: bigint({ mode: "number" }).primaryKey().generatedAlwaysAsIdentity(),
  jobType: text("job_type").notNull(),
  payload: jsonb().notNull().default({}),
  pipelineId: uuid("pipeline_id").notNull().defaultRandom(),
  queue: text().notNull().default("default"),
  priority: smallint().notNull().default(0),
  runAfter: timestamp("run_after", { withTimezone: true }),
  maxAttempts: integer("max_attempts"),
  timeoutSeconds: real("timeout_seconds"),
  tags: text().array().notNull().default([]),
  scope: text(),
  exclusive: boolean().notNull().default(false),
  idempotencyKey: text("idempotency_key"),
  // Written by the engine:
  state: text().notNull().default("pending"),
  attempts: integer().notNull().default(0),
  progress: real(),
  statusMessage: text("status_message"),
  result: jsonb(),
  error: text(),
  createdAt: timestamp("created_at", { withTimezone: true }).notNull().defaultNow(),
  createdBy: text("created_by")
    .notNull()
    .default(sql`current_user`),
  startedAt: timestamp("started_at", { withTimezone: true }),
  finishedAt: timestamp("finished_at", { withTimezone: true }),
};

export const jobs = reactor.table("jobs", jobColumns);

export const dependencies = reactor.table(
  "dependencies",
  {
    jobId: bigint("job_id", { mode: "number" }).notNull(),
    dependsOn: bigint("depends_on", { mode: "number" }).notNull(),
    needs: text({ enum: ["completed", "finished"] })
      .notNull()
      .default("completed"),
  },
  (table) => [primaryKey({ columns: [table.jobId, table.dependsOn] })],
);
