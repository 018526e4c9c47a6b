# Image for all of Jobplane in one container, or, with docker-compose.yml, for one container a process.
#
#   docker build --tag jobplane .
#   docker run --detach --name jobplane --publish 127.0.0.1:6443:6443 --volume jobplane:/data jobplane
#   docker exec jobplane jobplane kubeconfig > kubeconfig
FROM python:3.13-slim AS venv
WORKDIR /src
RUN python -m venv /opt/jobplane

FROM venv AS page
COPY scripts scripts
COPY ui ui
RUN mkdir -p app/api && scripts/page.sh /opt/jobplane

FROM venv AS build
ENV PATH=/opt/jobplane/bin:$PATH PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
# Dependencies before the sources, so that a change of the sources keeps them in the build cache.
COPY requirements.lock ./
RUN pip install --require-hashes -r requirements.lock
COPY pyproject.toml setup.py README.md LICENSE ./
COPY jobplane jobplane
COPY examples examples
COPY deploy deploy
COPY migrations migrations
COPY app app
COPY --from=page /src/app/api/ui app/api/ui
RUN pip install --no-deps --no-build-isolation --no-index .

FROM python:3.13-slim
# A named user, because initdb (`jobplane up`) refuses a user id without a name. /shared: the agent's files with docker-compose.yml.
RUN useradd --uid 10001 --create-home jobplane && install -d -o jobplane -g jobplane -m 0700 /data /shared
COPY --from=build /opt/jobplane /opt/jobplane
ENV PATH=/opt/jobplane/bin:$PATH JOBPLANE_DATA_DIR=/data PYTHONUNBUFFERED=1
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 6443
ENTRYPOINT ["jobplane"]
# Without a fixed node name, each new container on the same volume would be a new node.
CMD ["up", "--host", "0.0.0.0", "--node-name", "node-1"]
