// The code of the section "JDBC" of docs/clients/java.md. With pgjdbc's and Jackson's jars as JARS:
// java -cp $JARS Page.java

import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Types;
import java.util.Map;
import java.util.UUID;

public class Page {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        String url = "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT") + "/"
            + System.getenv("PGDATABASE");
        try (Connection db = DriverManager.getConnection(url, System.getenv("PGUSER"), System.getenv("PGPASSWORD"))) {
            insert(db);
            batch(db);
            UUID pipeline = dag(db);
            submit(db);
            refused(db);
            follow(URI.create(System.getenv("REACTOR_URL") + "/v1/pipelines/" + pipeline + "/events"));
        }
    }

    static void insert(Connection db) throws Exception {
        String sql = "insert into reactor.jobs (job_type, payload, tags) values (?, ?, ?)";
        try (PreparedStatement insert = db.prepareStatement(sql, Statement.RETURN_GENERATED_KEYS)) {
            insert.setString(1, "csv_ingest");
            insert.setObject(2, JSON.writeValueAsString(Map.of("file", "a.csv")), Types.OTHER); // jsonb
            insert.setArray(3, db.createArrayOf("text", new String[] {"nightly"}));
            insert.executeUpdate();
            try (ResultSet job = insert.getGeneratedKeys()) { // the whole row
                job.next();
                System.out.println("inserted " + job.getLong("id") + " " + job.getString("state"));
            }
        }
    }

    static void batch(Connection db) throws Exception {
        String sql = "insert into reactor.jobs (job_type, payload) values (?, ?)";
        db.setAutoCommit(false);
        try (PreparedStatement insert = db.prepareStatement(sql)) {
            for (int n = 0; n < 100; n++) {
                insert.setString(1, "csv_ingest");
                insert.setObject(2, JSON.writeValueAsString(Map.of("file", n + ".csv")), Types.OTHER);
                insert.addBatch();
            }
            System.out.println("batch " + insert.executeBatch().length);
            db.commit();
        } finally {
            db.rollback(); // without effect after the commit
            db.setAutoCommit(true);
        }
    }

    static UUID dag(Connection db) throws SQLException {
        UUID pipeline = UUID.randomUUID();
        String edge = "insert into reactor.dependencies (job_id, depends_on) values (?, ?)";
        db.setAutoCommit(false);
        try (PreparedStatement insert = db.prepareStatement(edge)) {
            insert.setLong(1, job(db, "load", pipeline));
            insert.setLong(2, job(db, "extract", pipeline));
            insert.executeUpdate();
            db.commit();
        } finally {
            db.rollback();
            db.setAutoCommit(true);
        }
        System.out.println("dag " + pipeline);
        return pipeline;
    }

    static long job(Connection db, String jobType, UUID pipeline) throws SQLException {
        String sql = "insert into reactor.jobs (job_type, pipeline_id) values (?, ?) returning id";
        try (PreparedStatement insert = db.prepareStatement(sql)) {
            insert.setString(1, jobType);
            insert.setObject(2, pipeline);
            try (ResultSet row = insert.executeQuery()) {
                row.next();
                return row.getLong("id");
            }
        }
    }

    static void submit(Connection db) throws Exception {
        String sql = "select * from reactor.submit(?, ?, idempotency_key => ?, timeout_seconds => ?)";
        try (PreparedStatement submit = db.prepareStatement(sql)) {
            submit.setString(1, "csv_ingest");
            submit.setObject(2, JSON.writeValueAsString(Map.of("file", "b.csv")), Types.OTHER);
            submit.setString(3, "upload-17");
            submit.setDouble(4, 90);
            for (int n = 0; n < 2; n++) {
                try (ResultSet job = submit.executeQuery()) {
                    job.next();
                    System.out.println(job.getString("outcome") + " " + job.getLong("id")); // created, then existing
                }
            }
        }
    }

    static void refused(Connection db) throws SQLException {
        String sql = "insert into reactor.jobs (job_type, idempotency_key) values ('csv_ingest', 'upload-17')";
        try (Statement insert = db.createStatement()) {
            insert.executeUpdate(sql + " on conflict do nothing"); // returns 0
            insert.executeUpdate(sql);
        } catch (SQLException error) {
            System.out.println("refused " + error.getSQLState()); // 23505
        }
    }

    static void follow(URI address) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(address).build(); // .header("Authorization", "Bearer " + token)
        var response = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofLines());
        String event = "";
        for (String line : (Iterable<String>) response.body()::iterator) {
            if (line.startsWith("event: ")) {
                event = line.substring(7);
            } else if (line.startsWith("data: ")) {
                String state = JSON.readTree(line.substring(6)).path("state").asText();
                System.out.println(event + " " + state); // snapshot, then job, step, pipeline; at last "end completed"
            }
        }
    }
}
