# PostgreSQL's official image with gpusort.
#
#   docker build -t gpusort .                                  # sorts on the CPU
#   docker build -t gpusort-cuda --target cuda .               # and on a GPU
#   docker build --build-arg PG_MAJOR=17 ...
#
#   docker run -e POSTGRES_PASSWORD=... gpusort -c session_preload_libraries=gpusort
#   docker run -e POSTGRES_PASSWORD=... --gpus all gpusort-cuda -c shared_preload_libraries=gpusort

ARG PG_MAJOR=18
ARG CUDA=13.0
ARG CUDA_IMAGE=nvidia/cuda:13.0.2-devel-ubuntu24.04

FROM ${CUDA_IMAGE} AS toolkit

FROM postgres:${PG_MAJOR}-trixie AS source
COPY . /gpusort

FROM source AS cpu-build
RUN /gpusort/.docker/build.sh /gpusort /package WITH_CUDA=no

# The compiler is the server's distribution's, and the toolkit is NVIDIA's.
FROM source AS cuda-build
ARG CUDA
ARG CUDA_ARCH="75 80 86 89 90 100 120"
COPY --from=toolkit /usr/local/cuda-${CUDA} /usr/local/cuda
RUN /gpusort/.docker/build.sh /gpusort /package WITH_CUDA=yes CUDA_ARCH="${CUDA_ARCH}"

# CUDA's runtime is in the library.  NVIDIA's container toolkit adds the driver.
FROM postgres:${PG_MAJOR}-trixie AS cuda
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=cuda-build /package/ /

FROM postgres:${PG_MAJOR}-trixie AS cpu
COPY --from=cpu-build /package/ /
