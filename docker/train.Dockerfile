# Training with torch and collab. PyPI's torch brings its own CUDA libraries, so no base image of CUDA is needed: the
# driver comes from the host (NVIDIA's container toolkit). From the repository's root:
#
#   docker build -f docker/train.Dockerfile -t collab-train .
#   docker run --gpus all --shm-size 8g -v "$PWD:/work" -w /work collab-train collab run train.py
#
# --build-arg TORCH=... takes another torch, --build-arg INDEX=https://download.pytorch.org/whl/cpu its CPU build.

FROM debian:12-slim AS torch
ARG TORCH=2.13.0
ARG INDEX=https://pypi.org/simple
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates libssl3 libstdc++6 python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /venv
RUN /venv/bin/pip install --no-cache-dir --index-url "$INDEX" "torch==$TORCH" \
    && /venv/bin/pip install --no-cache-dir numpy

FROM torch AS build
RUN apt-get update && apt-get install -y --no-install-recommends \
    build-essential cmake libboost1.81-dev libfmt-dev libspdlog-dev libssl-dev libxxhash-dev ninja-build python3-dev
RUN /venv/bin/pip install --no-cache-dir "scikit-build-core>=0.11" "pybind11>=2.13"
COPY . /src
RUN /venv/bin/pip wheel --no-build-isolation --no-deps --wheel-dir /wheels /src

# The stage with torch once more, without compilers.
FROM torch
COPY --from=build /wheels/ /wheels/
RUN /venv/bin/pip install --no-cache-dir --no-deps /wheels/*.whl
ENV PATH=/venv/bin:$PATH
EXPOSE 29500
CMD ["collab", "doctor"]
