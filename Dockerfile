# syntax=docker/dockerfile:1

# slim  the server, the demo model and the sentence encoder: docker build .
# full  with background removal, transcription and video work: docker build --target full .
ARG NODE_VERSION=26.10.0

FROM node:${NODE_VERSION}-slim AS build
WORKDIR /build
COPY package.json package-lock.json .npmrc ./
RUN npm ci
COPY . .
ARG SOURCE_DATE_EPOCH
RUN node scripts/build.ts
# An engine's packages are those of its own lock file, checked, and of this kind of machine.
RUN node scripts/fetch-engines.ts llama sentences

FROM build AS all-engines
RUN node scripts/fetch-engines.ts llama sentences cutout speech media

# The image of Node is the runtime; npm and its kin have nothing to do in it.
FROM node:${NODE_VERSION}-slim AS base
RUN rm -rf /usr/local/lib/node_modules /usr/local/bin/npm /usr/local/bin/npx /usr/local/bin/corepack /opt/yarn*
ENV NODE_ENV=production HOST=0.0.0.0 PORT=8402 FAREBOX_DATA=/data
WORKDIR /app
COPY package.json LICENSE README.md CHANGELOG.md ./
COPY bin ./bin
COPY assets ./assets
COPY --from=build /build/dist ./dist
RUN mkdir /data && chown node:node /data && ln -s /app/bin/farebox.mjs /usr/local/bin/farebox
VOLUME /data
EXPOSE 8402
STOPSIGNAL SIGTERM
# Docker Swarm replaces an unhealthy container. This helps if the server hangs, not if an engine is
# unreachable. A schema migration of a large table takes minutes before the server listens.
HEALTHCHECK --interval=15s --timeout=5s --start-period=10m \
  CMD ["node", "-e", "fetch('http://127.0.0.1:' + process.env.PORT + '/livez').then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["node", "/app/bin/farebox.mjs"]
CMD ["serve"]
USER node

FROM base AS full
COPY --from=all-engines /build/engines ./engines

# The last stage is the default.
FROM base AS slim
COPY --from=build /build/engines ./engines
