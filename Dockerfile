# CPU:  docker build -t dnlnet .
# CUDA: docker build -t dnlnet --build-arg BASE=nvidia/cuda:13.0.0-runtime-ubuntu24.04 .   (torch brings its own CUDA libraries)
# Use:  docker run --rm -v "$PWD:/work" dnlnet demo
ARG BASE=python:3.13-slim
FROM ${BASE}
RUN if ! command -v python3 >/dev/null || ! python3 -m venv --help >/dev/null 2>&1; then \
      apt-get update && apt-get install -y --no-install-recommends python3 python3-venv && rm -rf /var/lib/apt/lists/*; \
    fi
COPY . /source
RUN python3 -m venv /opt/dnlnet && /opt/dnlnet/bin/pip install --no-cache-dir "/source[detection,video,onnx]"
ENV PATH=/opt/dnlnet/bin:$PATH
WORKDIR /work
ENTRYPOINT ["dnlnet"]
CMD ["--help"]
