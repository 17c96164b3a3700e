// The conformance suite's client for JPA with EclipseLink. With the jars that Debian installs into /usr/share/java
// (postgresql, eclipselink, eclipselink-jpa-2.1-spec, jackson-databind, jackson-core, jackson-annotations) as JARS:
// javac -cp $JARS -d build Jpa.java && java -cp build:.:$JARS Jpa scenarios.json

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.io.PrintStream;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.sql.SQLException;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.function.Consumer;
import java.util.function.Function;
import javax.persistence.AttributeConverter;
import javax.persistence.Column;
import javax.persistence.Convert;
import javax.persistence.Converter;
import javax.persistence.Entity;
import javax.persistence.EntityManager;
import javax.persistence.EntityManagerFactory;
import javax.persistence.GeneratedValue;
import javax.persistence.GenerationType;
import javax.persistence.Id;
import javax.persistence.IdClass;
import javax.persistence.MappedSuperclass;
import javax.persistence.Persistence;
import javax.persistence.Query;
import javax.persistence.Table;
import org.eclipse.persistence.Version;
import org.postgresql.util.PGobject;
import org.postgresql.util.PSQLException;

public class Jpa {
    private static final ObjectMapper JSON = new ObjectMapper();

    private static PGobject object(String type, String value) {
        try {
            PGobject object = new PGobject();
            object.setType(type);
            object.setValue(value);
            return object;
        } catch (SQLException error) {
            throw new IllegalArgumentException(error);
        }
    }

    @Converter
    public static class JsonConverter implements AttributeConverter<JsonNode, Object> {
        @Override
        public Object convertToDatabaseColumn(JsonNode value) {
            return value == null ? null : object("jsonb", value.toString());
        }

        @Override
        public JsonNode convertToEntityAttribute(Object column) {
            try {
                return column == null ? null : JSON.readTree(column.toString());
            } catch (Exception error) {
                throw new IllegalArgumentException(error);
            }
        }
    }

    @Converter
    public static class TextsConverter implements AttributeConverter<List<String>, Object> {
        @Override
        public Object convertToDatabaseColumn(List<String> value) {
            if (value == null) {
                return null;
            }
            List<String> quoted = new ArrayList<>();
            value.forEach(text -> quoted.add('"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"'));
            return object("text[]", "{" + String.join(",", quoted) + "}");
        }

        @Override
        public List<String> convertToEntityAttribute(Object column) {
            return column == null ? null : List.of((String[]) column);
        }
    }

    @Converter
    public static class UuidConverter implements AttributeConverter<UUID, Object> {
        @Override
        public Object convertToDatabaseColumn(UUID value) {
            return value;
        }

        @Override
        public UUID convertToEntityAttribute(Object column) {
            return (UUID) column;
        }
    }

    @Converter
    public static class TimeConverter implements AttributeConverter<OffsetDateTime, Object> {
        @Override
        public Object convertToDatabaseColumn(OffsetDateTime value) {
            return value == null ? null : java.sql.Timestamp.from(value.toInstant());
        }

        @Override
        public OffsetDateTime convertToEntityAttribute(Object column) {
            return column == null ? null : ((java.sql.Timestamp) column).toInstant().atOffset(ZoneOffset.UTC);
        }
    }

    @MappedSuperclass
    public abstract static class ProducerColumns {
        @Id
        @GeneratedValue(strategy = GenerationType.IDENTITY)
        Long id;

        @Column(name = "job_type")
        String jobType;

        @Convert(converter = JsonConverter.class)
        JsonNode payload;

        @Convert(converter = TextsConverter.class)
        List<String> tags;

        @Column(name = "pipeline_id")
        @Convert(converter = UuidConverter.class)
        UUID pipelineId;

        String queue;
        Integer priority;

        @Column(name = "run_after")
        @Convert(converter = TimeConverter.class)
        OffsetDateTime runAfter;

        @Column(name = "max_attempts")
        Integer maxAttempts;

        @Column(name = "timeout_seconds")
        Double timeoutSeconds;

        String scope;
        Boolean exclusive;

        @Column(name = "idempotency_key")
        String idempotencyKey;
    }

    @Entity(name = "Job")
    @Table(schema = "reactor", name = "jobs")
    public static class Job extends ProducerColumns {
        @Column(insertable = false, updatable = false)
        String state;

        @Column(name = "created_at", insertable = false, updatable = false)
        @Convert(converter = TimeConverter.class)
        OffsetDateTime createdAt;
    }

    /** Writes every column of the table. */
    @Entity(name = "WholeJob")
    @Table(schema = "reactor", name = "jobs")
    public static class WholeJob extends ProducerColumns {
        @Column(name = "created_at")
        @Convert(converter = TimeConverter.class)
        OffsetDateTime createdAt;

        @Column(name = "created_by")
        String createdBy;

        String state;
        @Column(name = "changed_xid") Long changedXid;
        @Column(name = "inserted_xid") Long insertedXid;
        @Column(name = "attempt_id") @Convert(converter = UuidConverter.class) UUID attemptId;
        @Column(name = "worker_id") @Convert(converter = UuidConverter.class) UUID workerId;
        @Column(name = "parent_id") Long parentId;
        @Column(name = "broken_by") Long brokenBy;
        @Column(name = "started_at") @Convert(converter = TimeConverter.class) OffsetDateTime startedAt;
        @Column(name = "locked_at") @Convert(converter = TimeConverter.class) OffsetDateTime lockedAt;
        @Column(name = "finished_at") @Convert(converter = TimeConverter.class) OffsetDateTime finishedAt;
        Integer attempts;
        Integer quota;
        Integer children;
        @Column(name = "waiting_on") Integer waitingOn;
        Double progress;
        @Column(name = "is_current") Boolean isCurrent;
        Boolean parked;
        @Column(name = "locked_by") String lockedBy;
        @Column(name = "status_message") String statusMessage;
        String error;
        @Convert(converter = JsonConverter.class) JsonNode result;
    }

    public static class DependencyId implements Serializable {
        Long jobId;
        Long dependsOn;

        @Override
        public boolean equals(Object other) {
            return other instanceof DependencyId id && jobId.equals(id.jobId) && dependsOn.equals(id.dependsOn);
        }

        @Override
        public int hashCode() {
            return List.of(jobId, dependsOn).hashCode();
        }
    }

    @Entity(name = "Dependency")
    @Table(schema = "reactor", name = "dependencies")
    @IdClass(DependencyId.class)
    public static class Dependency {
        @Id
        @Column(name = "job_id")
        Long jobId;

        @Id
        @Column(name = "depends_on")
        Long dependsOn;

        String needs;
    }

    private final EntityManagerFactory factory;

    Jpa(EntityManagerFactory factory) {
        this.factory = factory;
    }

    public static void main(String[] arguments) throws Exception {
        // stringtype: the server derives the types of NULLs and texts from the columns.
        String options = "?stringtype=unspecified" + ("1".equals(System.getenv("POOLED")) ? "&prepareThreshold=0" : "");
        EntityManagerFactory factory = Persistence.createEntityManagerFactory("reactor", Map.of(
            "javax.persistence.jdbc.url", "jdbc:postgresql://" + System.getenv("PGHOST") + ":" + System.getenv("PGPORT")
                + "/" + System.getenv("PGDATABASE") + options,
            "javax.persistence.jdbc.user", System.getenv("PGUSER"),
            "javax.persistence.jdbc.password", System.getenv("PGPASSWORD")));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        out.println(JSON.writeValueAsString(Map.of("version", Version.getVersion())));
        JsonNode input = JSON.readTree(new File(arguments[0]));
        for (Map.Entry<String, Function<JsonNode, Map<String, ?>>> scenario : new Jpa(factory).scenarios().entrySet()) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("scenario", scenario.getKey());
            try {
                line.put("returned", scenario.getValue().apply(input.get(scenario.getKey())));
            } catch (RuntimeException error) {
                line.put("error", describe(error));
            }
            out.println(JSON.writeValueAsString(line));
        }
        factory.close();
    }

    private static Map<String, String> describe(Throwable error) {
        Map<String, String> fields = new LinkedHashMap<>();
        fields.put("message", error.toString());
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof PSQLException refusal && refusal.getServerErrorMessage() != null) {
                fields.put("sqlstate", refusal.getSQLState());
                fields.put("constraint", refusal.getServerErrorMessage().getConstraint());
            }
        }
        return fields;
    }

    private Map<String, Function<JsonNode, Map<String, ?>>> scenarios() {
        Map<String, Function<JsonNode, Map<String, ?>>> all = new LinkedHashMap<>();
        all.put("insert", in -> row(save(fill(new Job(), in))));
        all.put("defaults", in -> row(save(fill(new Job(), in))));
        all.put("batch", this::batch);
        all.put("bind", in -> Map.of("id", save(fill(new Job(), in)).id));
        all.put("every_column", this::everyColumn);
        all.put("dag", this::dag);
        all.put("submit", this::submit);
        all.put("conflict", this::conflict);
        all.put("ignore_conflict", this::ignoreConflict);
        all.put("rollback", this::rollback);
        all.put("read_own", this::readOwn);
        all.put("foreign", this::foreign);
        all.put("last_id", in -> Map.of("id", save(fill(new Job(), in)).id));
        return all;
    }

    private Map<String, ?> batch(JsonNode in) {
        List<Job> jobs = new ArrayList<>();
        in.get("jobs").forEach(job -> jobs.add(fill(new Job(), job)));
        transaction(manager -> jobs.forEach(manager::persist));
        return Map.of("count", jobs.size(), "ids", jobs.stream().map(job -> job.id).toList());
    }

    private Map<String, ?> everyColumn(JsonNode in) {
        WholeJob job = fill(new WholeJob(), in);
        job.createdAt = OffsetDateTime.now();
        return Map.of("id", save(job).id);
    }

    private Map<String, ?> dag(JsonNode in) {
        Map<String, Long> ids = new LinkedHashMap<>();
        transaction(manager -> {
            Map<String, Job> jobs = new LinkedHashMap<>();
            in.get("jobs").fields().forEachRemaining(entry -> {
                Job job = fill(new Job(), entry.getValue());
                job.pipelineId = UUID.fromString(in.get("pipeline_id").asText());
                manager.persist(job);
                jobs.put(entry.getKey(), job);
            });
            manager.flush(); // sets the ids
            jobs.forEach((name, job) -> ids.put(name, job.id));
            for (JsonNode edge : in.get("dependencies")) {
                Dependency dependency = new Dependency();
                dependency.jobId = ids.get(edge.get("job").asText());
                dependency.dependsOn = ids.get(edge.get("depends_on").asText());
                dependency.needs = edge.path("needs").asText("completed");
                manager.persist(dependency);
            }
        });
        return Map.of("ids", ids);
    }

    private Map<String, ?> submit(JsonNode in) {
        List<Object> ids = new ArrayList<>();
        List<Object> outcomes = new ArrayList<>();
        for (int n = 0; n < 2; n++) {
            transaction(manager -> {
                Query submit = manager.createNativeQuery(
                    "select id, outcome from reactor.submit(job_type => ?1, payload => ?2, idempotency_key => ?3, "
                        + "tags => ?4, timeout_seconds => ?5, max_attempts => ?6, priority => ?7)");
                submit.setParameter(1, in.get("job_type").asText());
                submit.setParameter(2, object("jsonb", in.get("payload").toString()));
                submit.setParameter(3, in.get("idempotency_key").asText());
                submit.setParameter(4, new TextsConverter().convertToDatabaseColumn(texts(in.get("tags"))));
                submit.setParameter(5, in.get("timeout_seconds").asDouble());
                submit.setParameter(6, in.get("max_attempts").asLong());
                submit.setParameter(7, in.get("priority").asLong());
                Object[] result = (Object[]) submit.getSingleResult();
                ids.add(result[0]);
                outcomes.add(result[1]);
            });
        }
        return Map.of("ids", ids, "outcomes", outcomes);
    }

    private Map<String, ?> conflict(JsonNode in) {
        save(fill(new Job(), in));
        save(fill(new Job(), in));
        return Map.of();
    }

    private Map<String, ?> ignoreConflict(JsonNode in) {
        int[] created = new int[1];
        for (int n = 0; n < 2; n++) {
            transaction(manager -> created[0] = manager
                .createNativeQuery("insert into reactor.jobs (job_type, idempotency_key) values (?1, ?2) "
                    + "on conflict do nothing")
                .setParameter(1, in.get("job_type").asText())
                .setParameter(2, in.get("idempotency_key").asText())
                .executeUpdate());
        }
        return Map.of("created", created[0]);
    }

    private Map<String, ?> rollback(JsonNode in) {
        EntityManager manager = factory.createEntityManager();
        manager.getTransaction().begin();
        try {
            manager.persist(fill(new Job(), in));
            manager.flush();
        } finally {
            manager.getTransaction().rollback();
            manager.close();
        }
        return Map.of();
    }

    private Map<String, ?> readOwn(JsonNode in) {
        Long id = save(fill(new Job(), in)).id;
        factory.getCache().evictAll();
        EntityManager manager = factory.createEntityManager();
        try {
            Long count = manager
                .createQuery("select count(j) from Job j where j.jobType = :type and j.state = 'pending'", Long.class)
                .setParameter("type", in.get("job_type").asText())
                .getSingleResult();
            return Map.of("payload", manager.find(Job.class, id).payload, "count", count);
        } finally {
            manager.close();
        }
    }

    private Map<String, ?> foreign(JsonNode in) {
        EntityManager manager = factory.createEntityManager();
        try {
            return Map.of("found", manager.find(Job.class, Long.valueOf(System.getenv("OTHERS_JOB"))) != null);
        } finally {
            manager.close();
        }
    }

    private void transaction(Consumer<EntityManager> work) {
        EntityManager manager = factory.createEntityManager();
        try {
            manager.getTransaction().begin();
            work.accept(manager);
            manager.getTransaction().commit();
        } finally {
            if (manager.getTransaction().isActive()) {
                manager.getTransaction().rollback();
            }
            manager.close();
        }
    }

    private <T> T save(T entity) {
        transaction(manager -> {
            manager.persist(entity);
            manager.flush();
            manager.refresh(entity); // reads what the database filled in
        });
        return entity;
    }

    private static <T extends ProducerColumns> T fill(T job, JsonNode in) {
        job.jobType = in.get("job_type").asText();
        job.payload = in.get("payload");
        job.tags = in.has("tags") ? texts(in.get("tags")) : null;
        job.pipelineId = in.has("pipeline_id") ? UUID.fromString(in.get("pipeline_id").asText()) : null;
        job.queue = in.path("queue").asText(null);
        job.priority = in.has("priority") ? in.get("priority").asInt() : null;
        job.runAfter = in.has("run_after") ? OffsetDateTime.parse(in.get("run_after").asText()) : null;
        job.maxAttempts = in.has("max_attempts") ? in.get("max_attempts").asInt() : null;
        job.timeoutSeconds = in.has("timeout_seconds") ? in.get("timeout_seconds").asDouble() : null;
        job.scope = in.path("scope").asText(null);
        job.exclusive = in.has("exclusive") ? in.get("exclusive").asBoolean() : null;
        job.idempotencyKey = in.path("idempotency_key").asText(null);
        return job;
    }

    private static List<String> texts(JsonNode list) {
        List<String> texts = new ArrayList<>();
        list.forEach(text -> texts.add(text.asText()));
        return texts;
    }

    private static Map<String, Object> row(Job job) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("id", job.id);
        row.put("pipeline_id", job.pipelineId);
        row.put("state", job.state);
        row.put("queue", job.queue);
        row.put("tags", job.tags);
        row.put("payload", job.payload);
        row.put("created_at", job.createdAt.toString());
        return row;
    }
}
