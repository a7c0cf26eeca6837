/**
 * Child process side of an embedded engine: an HTTP server on a loopback port that requires the
 * secret from its parent, and that exits when the parent disconnects.
 *
 * It converts Faults into `{error, code}` bodies, or into the body that a Fault carries. Each
 * engine names its routes.
 */
import { timingSafeEqual } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { Fault } from '../../src/core/faults.ts';
import { type Log, type LogFields, reasonOf } from '../../src/core/log.ts';
import { createServer } from '../../src/core/node-http.ts';
import { CALLER_HEADER } from '../../src/engines/contract.ts';
import type { ProgramReport, ProgramStart } from '../../src/engines/embedded/program-contract.ts';
import { resolveFrom } from './packages.ts';

export interface EngineRequest {
  readonly raw: IncomingMessage;
  /** The path segment at `{id}` of the route; empty for other routes. */
  readonly id: string;
  /** Caller whose queue turn the request uses; empty for an anonymous request. */
  readonly caller: string;
  /** Aborted when the connection closes. */
  readonly signal: AbortSignal;
}

/** A Fault becomes its status, any other error 500. */
type Handler = (request: EngineRequest, response: ServerResponse) => Promise<void> | void;

export interface EngineService {
  /** The ids that `GET /v1/models` lists. */
  readonly models?: readonly string[];
  /** By method and path, such as `GET /v1/videos/{id}`. */
  readonly routes: Readonly<Record<string, Handler>>;
  onMessage?(message: unknown): void;
}

/**
 * Creates the service from the settings that the parent sent. `report` sends a message to the
 * parent. The packages of the engine are importable when it is called.
 */
export type CreateService = (
  settings: unknown,
  report: (message: ProgramReport | object) => void,
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
      service = start(create, message as ProgramStart);
      service.catch(fail);
    } else if ((message as { type?: unknown }).type === 'are-you-alive') report({ type: 'alive' });
    else
      void service.then(
        (started) => started.onMessage?.(message),
        () => undefined,
      );
  });
}

async function start(
  create: CreateService,
  { settings, packages, apiKey, port, dataFolder }: ProgramStart,
) {
  if (packages !== undefined) resolveFrom(packages);
  const service = await create(settings, report, dataFolder);
  report({ type: 'ready', port: await listen(createEngineServer(service, apiKey), port) });
  return service;
}

function report(message: ProgramReport | object): void {
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
function createEngineServer({ models, routes }: EngineService, apiKey: string): Server {
  const expected = Buffer.from(`Bearer ${apiKey}`);
  const all = Object.entries({ ...(models && { 'GET /v1/models': listOf(models) }), ...routes });
  const server = createServer((raw, response) => {
    const given = Buffer.from(raw.headers.authorization ?? '');
    const isAdmitted = given.length === expected.length && timingSafeEqual(given, expected);
    const aborter = new AbortController();
    response.once('close', () => aborter.abort());
    const handle = async (): Promise<void> => {
      if (!isAdmitted) throw new Fault('AUTHENTICATION_FAILED');
      const { handler, id } = routeOf(all, raw);
      const caller = String(raw.headers[CALLER_HEADER] ?? '');
      await handler({ raw, id, caller, signal: aborter.signal }, response);
    };
    handle().catch((error: unknown) => sendError(raw, response, error));
  });
  server.headersTimeout = HEADERS_TIMEOUT_MS;
  server.requestTimeout = REQUEST_TIMEOUT_MS;
  server.keepAliveTimeout = KEEP_ALIVE_MS;
  return server;
}

/** Faults: NOT_FOUND, METHOD_NOT_ALLOWED. */
function routeOf(
  routes: readonly (readonly [string, Handler])[],
  { method = 'GET', url = '/' }: IncomingMessage,
): { handler: Handler; id: string } {
  const [path = '/'] = url.split('?', 1);
  const given = path.split('/');
  let isKnownPath = false;
  for (const [route, handler] of routes) {
    const [allowed, pattern = ''] = route.split(' ');
    const parts = pattern.split('/');
    const isPath =
      parts.length === given.length &&
      parts.every((part, index) => part === '{id}' || part === given[index]);
    if (isPath && allowed === method) return { handler, id: given[parts.indexOf('{id}')] ?? '' };
    isKnownPath ||= isPath;
  }
  throw new Fault(isKnownPath ? 'METHOD_NOT_ALLOWED' : 'NOT_FOUND');
}

function listOf(models: readonly string[]): Handler {
  const data = models.map((id) => ({ id, object: 'model', owned_by: 'farebox' }));
  return (_request, response) => sendJson(response, 200, { object: 'list', data });
}

/** A log that writes to standard error, which the parent copies into its own log. */
export function childLog(): Log {
  const write = (fields: LogFields, message: string): void => {
    process.stderr.write(`${JSON.stringify({ message, ...fields })}\n`);
  };
  return { debug: () => undefined, info: write, warn: write, error: write };
}

/** Resolves to a package of the engine. Faults: SERVICE_UNAVAILABLE if it does not load here. */
export async function nativePackage<T>(name: string, need: string): Promise<T> {
  try {
    return (await import(name)) as T; // the caller names the type of the package
  } catch (error) {
    // Expected on machines whose processor or C library has no prebuilt binary.
    const reason = error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error);
    const message = `${need} could not load the package "${name}" (${reason}): use an engine of your own`;
    throw new Fault('SERVICE_UNAVAILABLE', { message, cause: error, canRetry: false });
  }
}

export function sendJson(response: ServerResponse, status: number, body: unknown): void {
  sendBytes(response, status, 'application/json', Buffer.from(JSON.stringify(body)));
}

export function sendBytes(
  response: ServerResponse,
  status: number,
  contentType: string,
  body: Uint8Array,
): void {
  response.writeHead(status, { 'content-type': contentType, 'content-length': body.length });
  response.end(body);
}

/**
 * Writes server-sent events. The head is sent with the first of them, so that an earlier failure can
 * still set the status.
 */
export function writeEvents(response: ServerResponse, text: string): void {
  if (!response.headersSent) {
    response.writeHead(200, {
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-cache',
    });
  }
  response.write(text);
}

/** Writes one server-sent event. */
export function writeEvent(response: ServerResponse, event: unknown): void {
  writeEvents(response, `data: ${JSON.stringify(event)}\n\n`);
}

function sendError(raw: IncomingMessage, response: ServerResponse, error: unknown): void {
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
  sendJson(response, fault.status, body);
}
