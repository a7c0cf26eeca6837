/**
 * Child process side of an embedded engine: an HTTP server on a loopback port that requires the
 * secret from its parent, and that exits when the parent disconnects.
 *
 * It converts Faults into `{error, code}` bodies, or into the body that a Fault carries. Each
 * engine implements its own paths.
 */
import { timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Fault } from '../../src/core/faults.ts';
import { type Log, type LogFields, reasonOf } from '../../src/core/log.ts';
import { createServer } from '../../src/core/node-http.ts';
import { CALLER_HEADER } from '../../src/engines/contract.ts';
import { type FetchedPackages, resolveFrom } from './packages.ts';

export interface EngineRequest {
  readonly method: string;
  /** Path without the query. */
  readonly path: string;
  readonly raw: IncomingMessage;
  /** Caller whose queue turn the request uses; empty for an anonymous request. */
  readonly caller: string;
  readonly signal: AbortSignal;
}

export interface EngineService {
  /** Handles one request; a Fault becomes its status, any other error 500. */
  handle(request: EngineRequest, response: ServerResponse): Promise<void>;
  onMessage?(message: unknown): void;
}

/**
 * Creates the service from the settings that the parent sent. `report` sends a message to the
 * parent. The packages of the engine are importable when it is called.
 */
export type CreateService = (
  settings: unknown,
  report: (message: object) => void,
  dataFolder: string | undefined,
) => Promise<EngineService>;

/** Limits that Node enforces for slow or idle connections. */
const HEADERS_TIMEOUT_MS = 10_000;
/** No limit for the whole request: each engine limits its long jobs. */
const REQUEST_TIMEOUT_MS = 0;
const KEEP_ALIVE_MS = 120_000;

/** Serves until the parent disconnects. Call it once, from the entry file of a child process. */
export function serveEngine(create: CreateService): void {
  let service: Promise<EngineService> | undefined;
  process.once('disconnect', () => process.exit(0));
  // Ctrl-C in a terminal signals the whole process group; the parent stops its children itself.
  process.on('SIGINT', () => undefined);
  process.on('message', (message: unknown) => {
    // The first message contains the settings and starts the service; later messages wait for it.
    if (service === undefined) {
      service = start(create, message as Start);
      service.catch(fail);
    } else if ((message as { type?: unknown }).type === 'are-you-alive') report({ type: 'alive' });
    else
      void service.then(
        (started) => started.onMessage?.(message),
        () => undefined,
      );
  });
}

interface Start {
  readonly settings: unknown;
  readonly packages?: FetchedPackages;
  readonly apiKey: string;
  readonly port: number;
  readonly dataFolder?: string;
}

async function start(
  create: CreateService,
  { settings, packages, apiKey, port, dataFolder }: Start,
) {
  if (packages !== undefined) resolveFrom(packages);
  const service = await create(settings, report, dataFolder);
  report({ type: 'ready', port: await listen(createEngineServer(service, apiKey), port) });
  return service;
}

function report(message: object): void {
  if (process.connected) process.send?.(message);
}

/** Reports the error to the parent, which shows it to callers and the operator, and exits. */
function fail(error: unknown): void {
  report({ type: 'failed', error: reasonOf(error) });
  process.exitCode = 1;
  process.disconnect?.();
}

async function listen(server: Server, port: number): Promise<number> {
  const bind = async (wanted: number): Promise<void> => {
    await once(server.listen(wanted, '127.0.0.1'), 'listening');
  };
  // Reusing the port after a crash keeps the address stable; if it is taken, use any other.
  await bind(port).catch(() => bind(0));
  return (server.address() as AddressInfo).port; // of a TCP server
}

/** Creates an HTTP server for `service` that requires `apiKey` as the Bearer token. */
function createEngineServer(service: EngineService, apiKey: string): Server {
  const expected = Buffer.from(`Bearer ${apiKey}`);
  const server = createServer((raw, response) => {
    const given = Buffer.from(raw.headers.authorization ?? '');
    const isAdmitted = given.length === expected.length && timingSafeEqual(given, expected);
    const aborter = new AbortController();
    response.once('close', () => aborter.abort());
    const request: EngineRequest = {
      method: raw.method ?? 'GET',
      path: raw.url?.split('?', 1)[0] ?? '/',
      raw,
      caller: String(raw.headers[CALLER_HEADER] ?? ''),
      signal: aborter.signal,
    };
    const work = isAdmitted
      ? service.handle(request, response)
      : Promise.reject(new Fault('AUTHENTICATION_FAILED'));
    work.catch((error: unknown) => answerError(raw, response, error));
  });
  server.headersTimeout = HEADERS_TIMEOUT_MS;
  server.requestTimeout = REQUEST_TIMEOUT_MS;
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  return server;
}

/** A log that writes to standard error, which the parent copies into its own log. */
export function childLog(): Log {
  const write = (fields: LogFields, message: string): void => {
    process.stderr.write(`${JSON.stringify({ message, ...fields })}\n`);
  };
  return {
    debug: () => undefined,
    info: write,
    warn: write,
    error: write,
  };
}

export function answerJson(response: ServerResponse, status: number, body: unknown): void {
  answerBytes(response, status, 'application/json', Buffer.from(JSON.stringify(body)));
}

export function answerBytes(
  response: ServerResponse,
  status: number,
  contentType: string,
  body: Uint8Array,
): void {
  response.writeHead(status, { 'content-type': contentType, 'content-length': body.length });
  response.end(body);
}

function answerError(raw: IncomingMessage, response: ServerResponse, error: unknown): void {
  if (response.headersSent || response.destroyed) {
    response.destroy();
    return;
  }
  const fault = error instanceof Fault ? error : new Fault('INFERENCE_FAILED', { cause: error });
  if (!(error instanceof Fault)) process.stderr.write(`${reasonOf(error)}\n`);
  const retry = fault.options.retryAfterSeconds;
  if (retry !== undefined) response.setHeader('retry-after', String(retry));
  // Reads a rejected body to its end; otherwise the parent, which is still sending, gets a
  // connection reset instead of the response.
  if (!raw.complete) raw.resume();
  const body = fault.options.body ?? { error: fault.message, code: fault.code };
  answerJson(response, fault.status, body);
}
