# API, control loop and workers. Build from the root of the repository:
#   docker build -f infra/docker/backend.Dockerfile -t trainwright-backend .

FROM node:22-slim AS frontend
WORKDIR /src/frontend
COPY frontend/package.json frontend/package-lock.json frontend/.npmrc ./
RUN npm ci --no-audit --no-fund
COPY frontend/ ./
RUN npm run build

FROM python:3.12-slim
WORKDIR /src
COPY requirements/runtime.txt requirements/
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements/runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY sdk/ sdk/
COPY backend/ backend/
COPY trainer/ trainer/
COPY --from=frontend /src/backend/trainwright_backend/static/ backend/trainwright_backend/static/
RUN pip install --no-cache-dir --no-deps --no-build-isolation . \
 && useradd --uid 10001 --create-home trainwright \
 && install --directory --owner trainwright --mode 0700 /data
USER trainwright
WORKDIR /home/trainwright
ENV TRAINWRIGHT_DATA_DIR=/data
VOLUME /data
EXPOSE 8000
CMD ["trainwright-server", "serve", "--host", "0.0.0.0", "--port", "8000"]
