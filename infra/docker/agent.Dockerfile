# A node: agent, supervisor and trainer. Build from the root of the repository:
#   docker build -f infra/docker/agent.Dockerfile -t trainwright-agent .
# TORCH_INDEX names the package index with the PyTorch build for the node's driver; pip's default when empty.

FROM python:3.12-slim
ARG TORCH_VERSION=2.13.0
ARG TORCH_INDEX=
WORKDIR /src
COPY requirements/runtime.txt requirements/
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements/runtime.txt \
 && pip install --no-cache-dir ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch==$TORCH_VERSION"
COPY pyproject.toml README.md LICENSE ./
COPY sdk/ sdk/
COPY backend/ backend/
COPY trainer/ trainer/
RUN pip install --no-cache-dir --no-deps --no-build-isolation . \
 && useradd --uid 10001 --create-home trainwright \
 && install --directory --owner trainwright --mode 0700 /data
USER trainwright
WORKDIR /home/trainwright
VOLUME /data
ENTRYPOINT ["trainwright-agent"]
