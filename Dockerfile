# syntax=docker/dockerfile:1

# The image of Node is the runtime, so the pinned runtime among the optional packages stays out.
ARG NODE_VERSION=26.10.0

FROM node:${NODE_VERSION}-slim AS build
WORKDIR /build
COPY package.json package-lock.json .npmrc ./
# The compiler's binary is itself an optional package.
RUN npm ci
COPY . .
ARG SOURCE_DATE_EPOCH
RUN node scripts/build.ts

FROM node:${NODE_VERSION}-slim AS slim-packages
WORKDIR /build
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --omit=optional

FROM node:${NODE_VERSION}-slim AS full-packages
WORKDIR /build
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev

FROM node:${NODE_VERSION}-slim AS base
ENV NODE_ENV=production HOST=0.0.0.0 PORT=8402 FAREBOX_DATA=/data
WORKDIR /app
COPY package.json LICENSE README.md CHANGELOG.md ./
COPY bin ./bin
COPY assets ./assets
COPY --from=build /build/dist ./dist
RUN mkdir /data && chown node:node /data
VOLUME /data
EXPOSE 8402
STOPSIGNAL SIGTERM
# An unhealthy container is replaced, which mends a server that hangs, not an engine that is away.
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s \
  CMD ["node", "-e", "fetch('http://127.0.0.1:' + process.env.PORT + '/livez').then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["node", "/app/bin/farebox.mjs"]
CMD ["serve"]

# With the embedded engines: docker build --target full .
FROM base AS full
COPY --from=full-packages /build/node_modules ./node_modules
USER node

# Without engines, for a server in front of real ones. The last stage is the default.
FROM base AS slim
COPY --from=slim-packages /build/node_modules ./node_modules
USER node
