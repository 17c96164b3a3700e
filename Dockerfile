# One image for every part: docker run IMAGE migrate | worker --app your.module | serve
# It carries no PostgreSQL: set REACTOR_DATABASE_URL.
FROM python:3.13-slim

WORKDIR /app
COPY requirements.lock ./
RUN pip install --no-cache-dir --require-hashes -r requirements.lock

COPY pyproject.toml README.md CHANGELOG.md LICENSE ./
COPY reactor ./reactor
COPY http ./http
COPY sql ./sql
COPY migrations ./migrations
RUN pip install --no-cache-dir --no-deps --no-build-isolation . && useradd --system --no-create-home reactor

USER reactor
EXPOSE 8080
ENTRYPOINT ["reactor"]
CMD ["--help"]
