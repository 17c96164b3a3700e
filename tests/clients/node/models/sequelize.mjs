import { DataTypes, Model } from "sequelize";

export class Job extends Model {}
export class Dependency extends Model {}

/** Sequelize writes the attributes that are set, and reads back all of them. The database has the defaults. */
export function defineModels(sequelize) {
  const table = { sequelize, schema: "reactor", timestamps: false };
  Job.init(
    {
      id: { type: DataTypes.BIGINT, primaryKey: true, autoIncrement: true, autoIncrementIdentity: true },
      job_type: DataTypes.TEXT,
      payload: DataTypes.JSONB,
      pipeline_id: DataTypes.UUID,
      queue: DataTypes.TEXT,
      priority: DataTypes.SMALLINT,
      run_after: DataTypes.DATE,
      max_attempts: DataTypes.INTEGER,
      timeout_seconds: DataTypes.REAL,
      tags: DataTypes.ARRAY(DataTypes.TEXT),
      scope: DataTypes.TEXT,
      exclusive: DataTypes.BOOLEAN,
      idempotency_key: DataTypes.TEXT,
      // Written by the engine:
      state: DataTypes.TEXT,
      attempts: DataTypes.INTEGER,
      progress: DataTypes.REAL,
      status_message: DataTypes.TEXT,
      result: DataTypes.JSONB,
      error: DataTypes.TEXT,
      created_at: DataTypes.DATE,
      created_by: DataTypes.TEXT,
      started_at: DataTypes.DATE,
      finished_at: DataTypes.DATE,
    },
    { ...table, modelName: "Job", tableName: "jobs" },
  );
  Dependency.init(
    {
      job_id: { type: DataTypes.BIGINT, primaryKey: true },
      depends_on: { type: DataTypes.BIGINT, primaryKey: true },
      needs: DataTypes.TEXT, // "completed" or "finished"
    },
    { ...table, modelName: "Dependency", tableName: "dependencies" },
  );
}
