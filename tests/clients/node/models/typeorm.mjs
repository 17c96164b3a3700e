import { EntitySchema } from "typeorm";

// TypeORM writes DEFAULT for properties that are not set, and reads back after an insert the columns that have a
// `default` here; what it says does not matter as long as `synchronize` is off.
const fromDatabase = { default: () => "default" };

export const Job = new EntitySchema({
  name: "Job",
  schema: "reactor",
  tableName: "jobs",
  columns: {
    id: { type: "bigint", primary: true, generated: "increment" },
    jobType: { type: "text", name: "job_type" },
    payload: { type: "jsonb", ...fromDatabase },
    pipelineId: { type: "uuid", name: "pipeline_id", ...fromDatabase },
    queue: { type: "text", ...fromDatabase },
    priority: { type: "smallint", ...fromDatabase },
    runAfter: { type: "timestamptz", name: "run_after", nullable: true },
    maxAttempts: { type: "int", name: "max_attempts", nullable: true },
    timeoutSeconds: { type: "real", name: "timeout_seconds", nullable: true },
    tags: { type: "text", array: true, ...fromDatabase },
    scope: { type: "text", nullable: true },
    exclusive: { type: "boolean", ...fromDatabase },
    idempotencyKey: { type: "text", name: "idempotency_key", nullable: true },
    // Written by the engine:
    state: { type: "text", ...fromDatabase },
    attempts: { type: "int", ...fromDatabase },
    progress: { type: "real", nullable: true },
    statusMessage: { type: "text", name: "status_message", nullable: true },
    result: { type: "jsonb", nullable: true },
    error: { type: "text", nullable: true },
    createdAt: { type: "timestamptz", name: "created_at", ...fromDatabase },
    createdBy: { type: "text", name: "created_by", ...fromDatabase },
    startedAt: { type: "timestamptz", name: "started_at", nullable: true },
    finishedAt: { type: "timestamptz", name: "finished_at", nullable: true },
  },
});

export const Dependency = new EntitySchema({
  name: "Dependency",
  schema: "reactor",
  tableName: "dependencies",
  columns: {
    jobId: { type: "bigint", name: "job_id", primary: true },
    dependsOn: { type: "bigint", name: "depends_on", primary: true },
    needs: { type: "text", ...fromDatabase }, // "completed" or "finished"
  },
});
