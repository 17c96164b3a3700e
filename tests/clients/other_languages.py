"""The clients in languages other than Python and JavaScript, as data for install.py and registry.py.

Commands are run in the folder of the language's programs; {build} is the folder for what is built from them. The path of
the scenario file follows the words of `run`.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """One client library: how its program is built, and how it is run."""

    name: str
    run: tuple[str, ...]
    build: tuple[str, ...] = ()
    build_environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Language:
    """A language: its folder here, and the Debian packages that its programs need."""

    name: str
    packages: tuple[str, ...]
    programs: tuple[Program, ...]


# Debian installs the sources of Go libraries into a GOPATH; modules would look for them on the network.
DEBIAN_GO = (("GOPATH", "/usr/share/gocode"), ("GO111MODULE", "off"), ("GOFLAGS", "-trimpath"))
JARS = ":".join(
    f"/usr/share/java/{jar}.jar" for jar in ("postgresql", "jackson-databind", "jackson-core", "jackson-annotations")
)

LANGUAGES = (
    Language(
        "go",
        ("golang-go", "golang-github-lib-pq-dev", "golang-github-jackc-pgx-v4-dev"),
        (
            Program(
                "lib/pq",
                ("{build}/pq",),
                ("go", "build", "-o", "{build}/pq", "pq.go", "protocol.go"),
                DEBIAN_GO,
            ),
            Program(
                "pgx",
                ("{build}/pgx",),
                ("go", "build", "-o", "{build}/pgx", "pgx.go", "protocol.go"),
                DEBIAN_GO,
            ),
        ),
    ),
    Language(
        "java",
        ("openjdk-17-jdk-headless", "libpostgresql-jdbc-java", "libjackson2-databind-java"),
        (
            Program(
                "JDBC",
                ("java", "-cp", "{build}:" + JARS, "Jdbc"),
                ("javac", "-cp", JARS, "-d", "{build}", "Jdbc.java"),
            ),
        ),
    ),
    Language(
        "perl",
        ("perl", "libdbi-perl", "libdbd-pg-perl"),
        (Program("DBI", ("perl", "dbi.pl")),),
    ),
    Language(
        "php",
        ("php-cli", "php-pgsql", "php-illuminate-database"),
        (
            Program("PDO", ("php", "pdo.php")),
            Program("Eloquent", ("php", "eloquent.php")),
        ),
    ),
    Language(
        "ruby",
        ("ruby", "ruby-pg", "ruby-activerecord"),
        (
            Program("pg gem", ("ruby", "pg.rb")),
            Program("Active Record", ("ruby", "active_record.rb")),
        ),
    ),
)
