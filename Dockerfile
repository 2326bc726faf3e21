# The `backstop` command in an image of its own: no root, no files of its own but the command, a read-only file system.
#
#   docker build -t backstop .
#   docker run --rm --read-only --tmpfs /tmp --mount source=backstop,target=/data backstop runs
#
# The store is in /data, which is a volume. Agent files are mounted beside it: --mount type=bind,source=.,target=/agents,readonly
FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
RUN cargo build --release --locked --package backstop-cli

FROM debian:bookworm-slim
# Endpoints are asked by HTTPS. Debian removes old versions of a package, so none is pinned.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home backstop \
    && install --directory --owner backstop /data /agents
COPY --from=build /source/target/release/backstop /usr/local/bin/backstop
USER 10001
WORKDIR /agents
ENV BACKSTOP_STORE=sqlite:/data/backstop.db
VOLUME /data
ENTRYPOINT ["backstop"]
CMD ["--help"]
