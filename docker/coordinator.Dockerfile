# collab-coordinator and collab-helper, without torch and without a GPU. From the repository's root:
#
#   docker build -f docker/coordinator.Dockerfile -t collab-coordinator .
#   docker run --user "$(id -u)" -p 29500:29500 -v "$PWD/swarm.key:/run/swarm.key:ro" -e COLLAB_TOKEN_FILE=/run/swarm.key collab-coordinator

FROM debian:12-slim AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
    build-essential cmake libboost-program-options1.81-dev libboost1.81-dev libfmt-dev libspdlog-dev libssl-dev \
    libxxhash-dev ninja-build
COPY . /src
RUN cmake -S /src -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF -DCOLLAB_BUILD_TESTS=OFF \
    -DCOLLAB_BUILD_BENCH=OFF -DCOLLAB_BUILD_FUZZ=OFF -DCOLLAB_BUILD_TORCH=OFF
RUN cmake --build /build --target collab_coordinator collab_helper
RUN cmake --install /build --prefix /collab --component tools --strip

FROM debian:12-slim
RUN apt-get update \
    && apt-get install -y --no-install-recommends libboost-program-options1.81.0 libssl3 libstdc++6 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --no-create-home --uid 65500 collab
COPY --from=build /collab/bin/ /usr/local/bin/
USER collab
EXPOSE 29500
# collab-helper is here too: docker run --entrypoint collab-helper ... --coordinator HOST:29500
ENTRYPOINT ["collab-coordinator"]
CMD ["--listen", "0.0.0.0:29500"]
