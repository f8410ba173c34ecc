# The walpost binary on Debian, as an unprivileged user.
#   docker build -t walpost .
#   docker run --rm -v ./walpost.toml:/etc/walpost.toml:ro walpost run -c /etc/walpost.toml

FROM rust:1-bookworm AS build
WORKDIR /src
# librdkafka is built from source by its crate; OpenSSL's headers, make and the compilers come with the image.
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked && cp target/release/walpost /usr/local/bin/walpost

FROM debian:bookworm-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libssl3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --user-group --no-create-home --shell /usr/sbin/nologin walpost
COPY --from=build /usr/local/bin/walpost /usr/local/bin/walpost
USER walpost
EXPOSE 9464
# A stop signal delivers what is in flight, confirms it and ends with exit code 0.
STOPSIGNAL SIGTERM
ENTRYPOINT ["walpost"]
CMD ["run"]
