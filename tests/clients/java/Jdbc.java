// The conformance suite's client for JDBC with pgjdbc. With the jars that Debian installs into /usr/share/java
// (postgresql, jackson-databind, jackson-core, jackson-annotations) as JARS:
// javac -cp $JARS -d build Jdbc.java && java -cp build:$JARS Jdbc scenarios.json

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Types;
import java.time.OffsetDateTime;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import org.postgresql.util.DriverInfo;
import org.postgresql.util.PSQLException;

public class Jdbc {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Connection db;

    private interface Scenario {
        Map<String, ?> run(JsonNode in) throws Exception;
    }

    private interface Work<T> {
        T run() throws SQLException;
    }

    Jdbc(Connection db) {
        this.db = db;
    }

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("user", System.getenv("PGUSER"));
        properties.setProperty("password", System.getenv("PGPASSWORD"));
        if ("1".equals(System.getenv("POOLED"))) {
            // Named prepared statements belong to one server session; behind pgbouncer the next one may be another.
            properties.setProperty("prepareThreshold", "0");
        }
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/"
            + System.getenv("PGDATABASE");
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        out.println(JSON.writeValueAsString(Map.of("version", DriverInfo.DRIVER_VERSION)));
        JsonNode input = JSON.readTree(new File(arguments[0]));
        try (Connection db = DriverManager.getConnection(url, properties)) {
            for (Map.Entry<String, Scenario> scenario : new Jdbc(db).scenarios().entrySet()) {
                Map<String, Object> line = new LinkedHashMap<>();
                line.put("scenario", scenario.getKey());
                try {
                    line.put("returned", scenario.getValue().run(input.get(scenario.getKey())));
                } catch (Exception error) {
                    line.put("error", describe(error));
                }
                out.println(JSON.writeValueAsString(line));
            }
        }
    }

    private static Map<String, String> describe(Exception error) {
        Map<String, String> fields = new LinkedHashMap<>();
        fields.put("message", error.toString());
        if (error instanceof SQLException refusal) {
            fields.put("sqlstate", refusal.getSQLState());
        }
        if (error instanceof PSQLException refusal && refusal.getServerErrorMessage() != null) {
            fields.put("constraint", refusal.getServerErrorMessage().getConstraint());
        }
        return fields;
    }

    private Map<String, Scenario> scenarios() {
        Map<String, Scenario> all = new LinkedHashMap<>();
        all.put("insert", this::insert);
        all.put("defaults", this::defaults);
        all.put("batch", this::batch);
        all.put("bind", this::bind);
        all.put("every_column", this::everyColumn);
        all.put("dag", this::dag);
        all.put("submit", this::submit);
        all.put("conflict", this::conflict);
        all.put("ignore_conflict", this::ignoreConflict);
        all.put("rollback", this::rollback);
        all.put("read_own", this::readOwn);
        all.put("foreign", this::foreign);
        all.put("last_id", this::lastId);
        return all;
    }

    private Map<String, ?> insert(JsonNode in) throws Exception {
        String sql = "insert into reactor.jobs (job_type, payload, tags) values (?, ?, ?)";
        // pgjdbc adds RETURNING *, so that the generated keys are the whole row.
        try (PreparedStatement insert = db.prepareStatement(sql, Statement.RETURN_GENERATED_KEYS)) {
            insert.setString(1, in.get("job_type").asText());
            // As Types.OTHER the server derives the type, jsonb, from the column.
            insert.setObject(2, in.get("payload").toString(), Types.OTHER);
            insert.setArray(3, texts(in.get("tags")));
            insert.executeUpdate();
            try (ResultSet keys = insert.getGeneratedKeys()) {
                keys.next();
                return row(keys);
            }
        }
    }

    private Map<String, ?> defaults(JsonNode in) throws Exception {
        String sql = "insert into reactor.jobs (job_type) values (?)";
        try (PreparedStatement insert = db.prepareStatement(sql, Statement.RETURN_GENERATED_KEYS)) {
            insert.setString(1, in.get("job_type").asText());
            insert.executeUpdate();
            try (ResultSet keys = insert.getGeneratedKeys()) {
                keys.next();
                return row(keys);
            }
        }
    }

    private Map<String, ?> batch(JsonNode in) throws Exception {
        String sql = "insert into reactor.jobs (job_type, payload, tags, priority) values (?, ?, ?, ?)";
        return transaction(() -> {
            try (PreparedStatement insert = db.prepareStatement(sql, new String[] {"id"})) {
                for (JsonNode job : in.get("jobs")) {
                    insert.setString(1, job.get("job_type").asText());
                    insert.setObject(2, job.get("payload").toString(), Types.OTHER);
                    insert.setArray(3, texts(job.get("tags")));
                    insert.setInt(4, job.get("priority").asInt());
                    insert.addBatch();
                }
                int count = insert.executeBatch().length;
                List<Long> ids = new ArrayList<>();
                try (ResultSet keys = insert.getGeneratedKeys()) {
                    while (keys.next()) {
                        ids.add(keys.getLong("id"));
                    }
                }
                return Map.of("count", count, "ids", ids);
            }
        });
    }

    private Map<String, ?> bind(JsonNode in) throws Exception {
        String sql = "insert into reactor.jobs (job_type, payload, tags, run_after, timeout_seconds, priority, "
            + "max_attempts, queue, scope, exclusive, idempotency_key, pipeline_id) "
            + "values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) returning id";
        try (PreparedStatement insert = db.prepareStatement(sql)) {
            insert.setString(1, in.get("job_type").asText());
            insert.setObject(2, in.get("payload").toString(), Types.OTHER);
            insert.setArray(3, texts(in.get("tags")));
            insert.setObject(4, OffsetDateTime.parse(in.get("run_after").asText()));
            insert.setDouble(5, in.get("timeout_seconds").asDouble());
            insert.setLong(6, in.get("priority").asLong());
            insert.setLong(7, in.get("max_attempts").asLong());
            insert.setString(8, in.get("queue").asText());
            insert.setString(9, in.get("scope").asText());
            insert.setBoolean(10, in.get("exclusive").asBoolean());
            insert.setString(11, in.get("idempotency_key").asText());
            insert.setObject(12, UUID.fromString(in.get("pipeline_id").asText()));
            return Map.of("id", first(insert));
        }
    }

    private Map<String, ?> everyColumn(JsonNode in) throws Exception {
        List<String> columns = new ArrayList<>();
        try (PreparedStatement all = db.prepareStatement("select * from reactor.jobs limit 0")) {
            ResultSetMetaData data = all.getMetaData();
            for (int n = 1; n <= data.getColumnCount(); n++) {
                if (!data.getColumnName(n).equals("id")) {
                    columns.add(data.getColumnName(n));
                }
            }
        }
        String sql = "insert into reactor.jobs (" + String.join(", ", columns) + ") values (?"
            + ", ?".repeat(columns.size() - 1) + ") returning id";
        try (PreparedStatement insert = db.prepareStatement(sql)) {
            for (int n = 1; n <= columns.size(); n++) {
                switch (columns.get(n - 1)) {
                    case "job_type" -> insert.setString(n, in.get("job_type").asText());
                    case "payload" -> insert.setObject(n, in.get("payload").toString(), Types.OTHER);
                    case "created_at" -> insert.setObject(n, OffsetDateTime.now());
                    default -> insert.setNull(n, Types.NULL);
                }
            }
            return Map.of("id", first(insert));
        }
    }

    private Map<String, ?> dag(JsonNode in) throws Exception {
        String job = "insert into reactor.jobs (job_type, pipeline_id) values (?, ?) returning id";
        String edge = "insert into reactor.dependencies (job_id, depends_on, needs) values (?, ?, ?)";
        UUID pipeline = UUID.fromString(in.get("pipeline_id").asText());
        return transaction(() -> {
            Map<String, Long> ids = new LinkedHashMap<>();
            try (PreparedStatement insert = db.prepareStatement(job)) {
                Iterable<Map.Entry<String, JsonNode>> jobs = in.get("jobs")::fields;
                for (Map.Entry<String, JsonNode> entry : jobs) {
                    insert.setString(1, entry.getValue().get("job_type").asText());
                    insert.setObject(2, pipeline);
                    ids.put(entry.getKey(), first(insert));
                }
            }
            try (PreparedStatement insert = db.prepareStatement(edge)) {
                for (JsonNode dependency : in.get("dependencies")) {
                    insert.setLong(1, ids.get(dependency.get("job").asText()));
                    insert.setLong(2, ids.get(dependency.get("depends_on").asText()));
                    insert.setString(3, dependency.path("needs").asText("completed"));
                    insert.addBatch();
                }
                insert.executeBatch();
            }
            return Map.of("ids", ids);
        });
    }

    private Map<String, ?> submit(JsonNode in) throws Exception {
        String sql = "select id, outcome from reactor.submit(job_type => ?, payload => ?, idempotency_key => ?, "
            + "tags => ?, timeout_seconds => ?, max_attempts => ?, priority => ?)";
        List<Long> ids = new ArrayList<>();
        List<String> outcomes = new ArrayList<>();
        try (PreparedStatement submit = db.prepareStatement(sql)) {
            submit.setString(1, in.get("job_type").asText());
            submit.setObject(2, in.get("payload").toString(), Types.OTHER);
            submit.setString(3, in.get("idempotency_key").asText());
            submit.setArray(4, texts(in.get("tags")));
            submit.setDouble(5, in.get("timeout_seconds").asDouble());
            submit.setLong(6, in.get("max_attempts").asLong());
            submit.setLong(7, in.get("priority").asLong());
            for (int n = 0; n < 2; n++) {
                try (ResultSet result = submit.executeQuery()) {
                    result.next();
                    ids.add(result.getLong("id"));
                    outcomes.add(result.getString("outcome"));
                }
            }
        }
        return Map.of("ids", ids, "outcomes", outcomes);
    }

    private Map<String, ?> conflict(JsonNode in) throws Exception {
        insertWithKey(in, "");
        insertWithKey(in, "");
        return Map.of();
    }

    private Map<String, ?> ignoreConflict(JsonNode in) throws Exception {
        insertWithKey(in, " on conflict do nothing");
        return Map.of("created", insertWithKey(in, " on conflict do nothing"));
    }

    private int insertWithKey(JsonNode in, String onConflict) throws SQLException {
        String sql = "insert into reactor.jobs (job_type, idempotency_key) values (?, ?)" + onConflict;
        try (PreparedStatement insert = db.prepareStatement(sql)) {
            insert.setString(1, in.get("job_type").asText());
            insert.setString(2, in.get("idempotency_key").asText());
            return insert.executeUpdate();
        }
    }

    private Map<String, ?> rollback(JsonNode in) throws Exception {
        db.setAutoCommit(false);
        try (PreparedStatement insert = db.prepareStatement("insert into reactor.jobs (job_type) values (?)")) {
            insert.setString(1, in.get("job_type").asText());
            insert.executeUpdate();
        } finally {
            db.rollback();
            db.setAutoCommit(true);
        }
        return Map.of();
    }

    private Map<String, ?> readOwn(JsonNode in) throws Exception {
        long id = insertPayload(in);
        String count = "select count(*) from reactor.jobs where job_type = ? and state = 'pending'";
        try (PreparedStatement find = db.prepareStatement("select * from reactor.jobs where id = ?");
            PreparedStatement own = db.prepareStatement(count)) {
            find.setLong(1, id);
            own.setString(1, in.get("job_type").asText());
            try (ResultSet job = find.executeQuery()) {
                job.next();
                return Map.of("payload", row(job).get("payload"), "count", first(own));
            }
        }
    }

    private Map<String, ?> foreign(JsonNode in) throws Exception {
        try (PreparedStatement find = db.prepareStatement("select * from reactor.jobs where id = ?")) {
            find.setLong(1, Long.parseLong(System.getenv("OTHERS_JOB")));
            try (ResultSet job = find.executeQuery()) {
                return Map.of("found", job.next());
            }
        }
    }

    private Map<String, ?> lastId(JsonNode in) throws Exception {
        return Map.of("id", insertPayload(in));
    }

    private long insertPayload(JsonNode in) throws SQLException {
        String sql = "insert into reactor.jobs (job_type, payload) values (?, ?::jsonb)";
        try (PreparedStatement insert = db.prepareStatement(sql, Statement.RETURN_GENERATED_KEYS)) {
            insert.setString(1, in.get("job_type").asText());
            insert.setString(2, in.get("payload").toString());
            insert.executeUpdate();
            try (ResultSet keys = insert.getGeneratedKeys()) {
                keys.next();
                return keys.getLong("id");
            }
        }
    }

    private <T> T transaction(Work<T> work) throws SQLException {
        db.setAutoCommit(false);
        try {
            T result = work.run();
            db.commit();
            return result;
        } catch (SQLException | RuntimeException error) {
            db.rollback();
            throw error;
        } finally {
            db.setAutoCommit(true);
        }
    }

    private java.sql.Array texts(JsonNode list) throws SQLException {
        List<String> texts = new ArrayList<>();
        list.forEach(text -> texts.add(text.asText()));
        return db.createArrayOf("text", texts.toArray());
    }

    private static long first(PreparedStatement statement) throws SQLException {
        try (ResultSet result = statement.executeQuery()) {
            result.next();
            return result.getLong(1);
        }
    }

    private static Map<String, Object> row(ResultSet job) throws Exception {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("id", job.getLong("id"));
        row.put("pipeline_id", job.getObject("pipeline_id", UUID.class));
        row.put("state", job.getString("state"));
        row.put("queue", job.getString("queue"));
        row.put("tags", job.getArray("tags").getArray());
        row.put("payload", JSON.readTree(job.getString("payload")));
        row.put("created_at", job.getObject("created_at", OffsetDateTime.class).toString());
        return row;
    }
}
