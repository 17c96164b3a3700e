"""Installs the libraries and tools of the clients into build/clients/<language>, or says why that is not possible.

python tests/clients/install.py                 every language
python tests/clients/install.py python node     these
"""

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build" / "clients"


class CanNot(Exception):
    """A tool is missing, or did not do its work."""


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=os.environ | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise CanNot(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        raise CanNot(f"{' '.join(map(str, command))}\n{done.stdout[-2000:]}")


def debian(packages: Sequence[str], programs: Sequence[str] = ()) -> None:
    """Installs these packages if one of the programs is missing, or, without programs, one of the packages."""
    if programs and all(map(shutil.which, programs)):
        return
    if not shutil.which("apt-get"):
        raise CanNot(f"install {' '.join(programs or packages)}")
    missing = [package for package in packages if not _is_installed(package)]
    if not missing:
        return
    if os.geteuid() != 0:
        raise CanNot(f"apt-get install {' '.join(missing)}")
    install = ("apt-get", "-o", "DPkg::Lock::Timeout=600", "install", "-y", "-qq", "--no-install-recommends", *missing)
    try:
        run(*install)
    except CanNot:
        # The list of packages is old, or there is none.
        run("apt-get", "-o", "DPkg::Lock::Timeout=600", "update", "-qq")
        run(*install)


def _is_installed(package: str) -> bool:
    asked = subprocess.run(["dpkg-query", "-W", "-f=${Status}", package], capture_output=True, text=True)
    return asked.stdout == "install ok installed"


def python(source: Path, build: Path) -> None:
    run(sys.executable, "-m", "venv", "--clear", build)
    pip = (build / "bin" / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check")
    run(*pip, "--require-hashes", "-r", source / "requirements.lock")


def npm_packages(source: Path, build: Path) -> None:
    debian(["nodejs", "npm"], ["node", "npm"])
    for file in (HERE.parent.parent / ".npmrc", source / "package.json", source / "package-lock.json"):
        shutil.copy(file, build)
    run("npm", "ci", "--ignore-scripts", "--loglevel", "error", "--no-progress", "--no-audit", "--no-fund", cwd=build)


def both(source: Path, build: Path) -> None:
    """The clients of streams, and the generators of clients: in Python and in Node."""
    python(source, build / "venv")
    npm_packages(source, build)


def node(source: Path, build: Path) -> None:
    npm_packages(source, build)
    # Modules are looked for beside the program that imports them.
    link = source / "node_modules"
    link.unlink(missing_ok=True)
    link.symlink_to(os.path.relpath(build / "node_modules", source))
    # Prisma's command line downloads a program for migrations unless it is given one; `generate` never starts it.
    prisma = build / "node_modules" / ".bin" / "prisma"
    version = subprocess.check_output(["node", "--version"], text=True)
    # With an older Node (Debian 12 has 18) it does not start, and the suite skips Prisma.
    if int(version.removeprefix("v").partition(".")[0]) >= 20:
        run(prisma, "generate", "--schema", "models/schema.prisma", cwd=source, PRISMA_SCHEMA_ENGINE_BINARY="/bin/true")


def java(source: Path, build: Path) -> None:
    debian(["default-jdk-headless", "libpostgresql-jdbc-java", "libjackson2-databind-java", "libeclipselink-java"])
    jackson = ("jackson-databind", "jackson-core", "jackson-annotations")
    for jar in ("postgresql", "eclipselink", "eclipselink-jpa-2.1-spec", *jackson):
        shutil.copy(f"/usr/share/java/{jar}.jar", build)
    run("javac", "-cp", f"{build}/*", "-d", build, source / "Jdbc.java", source / "Jpa.java")


def go(source: Path, build: Path) -> None:
    debian(["golang-go", "golang-github-lib-pq-dev", "golang-github-jackc-pgx-v4-dev"])
    for name in ("pq", "pgx"):
        program = ("go", "build", "-o", build / name, source / f"{name}.go", source / "protocol.go")
        # Debian has the libraries as sources; modules would look for them on the network.
        run(*program, GOPATH="/usr/share/gocode", GO111MODULE="off", GOFLAGS="-trimpath", GOCACHE=f"{build}/cache")


def ruby(source: Path, build: Path) -> None:
    debian(["ruby", "ruby-pg", "ruby-activerecord"])


def php(source: Path, build: Path) -> None:
    debian(["php-cli", "php-pgsql", "php-illuminate-database", "php-doctrine-orm", "php-symfony-cache"])


def perl(source: Path, build: Path) -> None:
    debian(["libdbi-perl", "libdbd-pg-perl"])


LANGUAGES: dict[str, Callable[[Path, Path], None]] = {
    "python": python,
    "node": node,
    "java": java,
    "go": go,
    "ruby": ruby,
    "php": php,
    "perl": perl,
    "streams": both,
    "generated": both,
}
# What the programs are made from: when one of these changes, the language is installed again.
INPUTS = ("*.lock", "*.json", "models/*.prisma", "*.go", "*.java")

# What is made outside of build/, and may be missing beside a complete build.
OUTSIDE = {"node": HERE / "node" / "node_modules"}


def is_installed(language: str) -> bool:
    """As its inputs are now."""
    made = BUILD / language / ".made"
    return made.exists() and made.read_text() == _digest(language) and OUTSIDE.get(language, made).exists()


def _digest(language: str) -> str:
    inputs = [Path(__file__), *sorted(path for pattern in INPUTS for path in (HERE / language).glob(pattern))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in inputs)).hexdigest()


def install(language: str) -> str:
    """Returns what happened, in one line. Raises CanNot."""
    if is_installed(language):
        return "is installed"
    source, build = HERE / language, BUILD / language
    shutil.rmtree(build, ignore_errors=True)
    build.mkdir(parents=True)
    before = time.monotonic()
    LANGUAGES[language](source, build)
    (build / ".made").write_text(_digest(language))
    return f"installed in {time.monotonic() - before:.0f} s"


def main(languages: Sequence[str]) -> int:
    failed = 0
    for language in languages or LANGUAGES:
        try:
            print(f"{language}: {install(language)}", flush=True)
        except (CanNot, OSError) as reason:
            print(f"{language}: not installed: {reason}", flush=True)
            failed += 1
    # Asked for everything, a machine installs what it can.
    return 1 if failed and languages else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
