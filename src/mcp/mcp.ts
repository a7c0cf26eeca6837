/**
 * `POST /mcp`: a Model Context Protocol server over Streamable HTTP. Its tools call the HTTP routes of
 * this process, for the same caller and at the same prices.
 *
 * Requests are stateless, so that any process can serve them. The key in the header or a payment in
 * the call determines the payer; an anonymous client can list the tools and receives the payment
 * requirements.
 */
import { parseJsonBody } from '../json/json-scan.ts';
import type { Catalog } from '../catalog/catalog.ts';
import type { Config, ConfigInForce } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import type { Store } from '../db/db.ts';
import type { CallRoute } from '../http/internal-call.ts';
import { LARGE_BODY_BYTES, type ReadLargeJson } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import type { Feature, Route } from '../http/route.ts';
import type { Resource } from '../payments/payments.ts';
import { CallResult } from './call-response.ts';
import { chatTools } from './chat-tools.ts';
import { MCP_DESCRIPTION } from './describe.ts';
import { mediaTools } from './media-tools.ts';
import {
  INVALID_REQUEST,
  type Json,
  type Message,
  PARSE_ERROR,
  ProtocolError,
  VERSIONS,
  errorOf,
  idOf,
  invalidParams,
  methodNotFound,
  negotiated,
  readMessage,
  resultOf,
} from './protocol.ts';
import { RunningCalls } from './running-calls.ts';
import { PAYMENT_CAPABILITY, runTool } from './run-tool.ts';
import { serviceTools } from './service-tools.ts';
import { textTools } from './text-tools.ts';
import { type Tool, asJson } from './tool.ts';
import { paidTools } from './bazaar.ts';
import { videoTools } from './video-tools.ts';

export interface McpParts {
  readonly config: ConfigInForce;
  readonly catalog: Catalog;
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  /** `YYYYMMDD.HHMMSS` of the build. */
  readonly version: string;
  readonly call: CallRoute;
  readonly readLargeJson: ReadLargeJson;
  readonly networks: () => Promise<readonly string[]>;
  /** USD of one web search; `undefined` if none is configured. */
  readonly searchPrice: () => string | undefined;
  readonly takesWallets: boolean;
}

const PATH = '/mcp';
/** Limit for anonymous clients: enough for a prompt, but not for media in base64. */
const ANONYMOUS_LIMIT_BYTES = 1024 * 1024;
const TOOLS_PER_PAGE = 50;
/** Time for which a client may cache the list, because prices can change. */
const LIST_TTL_MS = 60_000;
const MAX_BATCH = 20;
const CURSOR = /^\d{1,9}$/;
const SESSION_ID = /^[\x21-\x7e]{1,128}$/;

/** The feature, and its paid tools for indexes. */
export interface McpFeature extends Feature {
  readonly paidTools: () => Promise<readonly Resource[]>;
}

export function mcpFeature(parts: McpParts): McpFeature {
  const server = new McpServer(parts);
  return {
    paidTools: () => paidTools(server.tools, PATH),
    routes: [server.route],
    start: () => void server.calls.start(),
    close: async () => server.calls.close(),
  };
}

class McpServer {
  readonly #parts: McpParts;
  readonly tools: readonly Tool[];
  readonly calls: RunningCalls;
  readonly route: Route;

  constructor(parts: McpParts) {
    this.#parts = parts;
    const { catalog, ids, searchPrice, networks, config } = parts;
    const { name: serviceName } = config.current.service;
    this.tools = [
      ...chatTools({ catalog, serviceName, searchPrice }),
      ...textTools({ catalog }),
      ...mediaTools({ catalog, ids }),
      ...videoTools({ catalog }),
      ...serviceTools({
        rpc: async () => ({
          networks: await networks(),
          usdPerCredit: config.current.rpc.usdPerCredit,
        }),
      }),
    ];
    this.calls = new RunningCalls(parts.store);
    this.route = {
      method: 'POST',
      path: PATH,
      root: true,
      auth: 'optional-key-or-wallet',
      about: 'Model Context Protocol',
      body: {
        types: ['application/json'],
        limitBytes: config.current.http.jsonLimitBytes,
        strangerLimitBytes: ANONYMOUS_LIMIT_BYTES,
      },
      describe: MCP_DESCRIPTION,
      errors: (fault) => ({ body: fault.options.body ?? faultBody(fault) }),
      handle: (context) => this.#handle(context),
    };
  }

  async #handle(context: RequestContext): Promise<void> {
    requireOrigin(context, this.#parts.config.current);
    context.set('cache-control', 'no-store');
    const value = await this.#read(context);
    if (Array.isArray(value)) await this.#respondToBatch(context, value);
    else await this.#respondToOne(context, value);
  }

  async #read({ body, callerIfKnown }: RequestContext): Promise<unknown> {
    try {
      return body.length < LARGE_BODY_BYTES
        ? parseJsonBody(body)
        : await this.#parts.readLargeJson(body, callerIfKnown?.accountId ?? '');
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      throw httpFault(new ProtocolError(PARSE_ERROR, error.message, { status: 400 }));
    }
  }

  async #respondToOne(context: RequestContext, value: unknown): Promise<void> {
    const message = readOne(value, context);
    if (message === undefined) return context.empty(202);
    const { id, method } = message;
    if (method === 'tools/call' && id !== undefined)
      return this.#respondToCall(context, message, id);
    let response: Json | undefined;
    try {
      response = await this.#responseTo(context, message);
    } catch (error) {
      response = errorResponse(error, id);
    }
    if (response === undefined) context.empty(202);
    else await context.json(200, response);
  }

  /** Batches exist only in revision 2025-03-26; their messages run one after the other. */
  async #respondToBatch(context: RequestContext, values: readonly unknown[]): Promise<void> {
    if (values.length === 0 || values.length > MAX_BATCH) {
      const text = `A batch must have 1 to ${MAX_BATCH} messages`;
      throw httpFault(new ProtocolError(INVALID_REQUEST, text, { status: 400 }));
    }
    const responses: Json[] = [];
    for (const value of values) {
      let response: Json | undefined;
      try {
        response = await this.#responseTo(context, readMessage(value, context));
      } catch (error) {
        // An error of one message must not discard responses to others, which may be charged.
        if (!(error instanceof ProtocolError)) throw error;
        response = errorOf(idOf(value), error);
      }
      if (response !== undefined) responses.push(response);
    }
    if (responses.length === 0) context.empty(202);
    else await context.json(200, responses);
  }

  /** The response to a request; `undefined` for a notification. */
  async #responseTo(
    context: RequestContext,
    message: Message | undefined,
  ): Promise<Json | undefined> {
    if (message?.id !== undefined)
      return resultOf(
        message.id,
        this.#withServerInfo(message, await this.#result(context, message)),
      );
    if (message !== undefined) await this.#notified(context, message);
    return undefined;
  }

  /** A call can report progress and can be cancelled by another message. */
  async #respondToCall(
    context: RequestContext,
    message: Message,
    id: NonNullable<Message['id']>,
  ): Promise<void> {
    const response = new CallResult(context, this.#parts.clock, message.meta['progressToken']);
    const cancellable = this.calls.begin(clientOf(context), id);
    const signal =
      cancellable === undefined
        ? context.signal
        : AbortSignal.any([context.signal, cancellable.signal]);
    try {
      const tool = await this.#tool(message);
      const run = { tool, message, context, signal, progress: response.progress };
      const result = await runTool(this.#parts, run);
      await response.end(resultOf(id, this.#withServerInfo(message, result)));
    } catch (error) {
      await response.end(signal.aborted ? undefined : errorResponse(error, id));
    } finally {
      response.close();
      cancellable?.end();
    }
  }

  async #result(context: RequestContext, message: Message): Promise<Json> {
    switch (message.method) {
      case 'initialize':
        if (clientOf(context) === undefined) context.set('mcp-session-id', this.#parts.ids.uuid());
        return {
          protocolVersion: negotiated(message.params['protocolVersion']),
          ...this.#introduction(),
          serverInfo: this.#serverInfo(),
        };
      case 'server/discover':
        return { supportedVersions: VERSIONS, ...this.#introduction(), ...CACHEABLE };
      case 'ping':
        return {};
      case 'tools/list':
        return { ...(await this.#list(message.params['cursor'])), ...CACHEABLE };
      case 'tools/call': {
        const tool = await this.#tool(message);
        const { signal } = context;
        return runTool(this.#parts, { tool, message, context, signal, progress: NO_PROGRESS });
      }
      default:
        throw methodNotFound(message);
    }
  }

  #introduction(): Json {
    const payment = this.#parts.takesWallets ? PAYMENT_CAPABILITY : {};
    return { capabilities: { tools: {}, ...payment }, instructions: INSTRUCTIONS };
  }

  #serverInfo(): Json {
    const { version, config } = this.#parts;
    const { name, title } = config.current.service;
    return { name, title, version };
  }

  #withServerInfo({ isModern }: Message, result: Json): Json {
    if (!isModern) return result;
    const { _meta: meta } = result;
    return {
      resultType: 'complete',
      ...result,
      _meta: { ...(meta as Json | undefined), [SERVER_INFO]: this.#serverInfo() }, // an object of ours
    };
  }

  /** Always in the same order, for the prompt caches of clients. */
  async #list(cursor: unknown): Promise<Json> {
    if (cursor !== undefined && !(typeof cursor === 'string' && CURSOR.test(cursor))) {
      throw invalidParams('Unknown cursor');
    }
    const start = Number(cursor ?? 0);
    const offered: Json[] = [];
    for (const tool of this.tools) {
      const description = await tool.about();
      if (description === undefined) continue;
      const { name, title, inputSchema, outputSchema, hints } = tool;
      const annotations = { title, ...hints };
      offered.push({ name, title, description, inputSchema, outputSchema, annotations });
    }
    const end = start + TOOLS_PER_PAGE;
    const tools = offered.slice(start, end);
    if (tools.length === 0 && start > 0) throw invalidParams('Unknown cursor');
    return { tools, ...(end < offered.length ? { nextCursor: String(end) } : {}) };
  }

  async #tool({ params }: Message): Promise<Tool> {
    const { name } = params;
    const tool = this.tools.find((one) => one.name === name);
    if (tool !== undefined && (await tool.about()) !== undefined) return tool;
    if (typeof name !== 'string') throw invalidParams('params.name must be the name of a tool');
    throw invalidParams(`Unknown tool: ${JSON.stringify(name.slice(0, 100))}; see tools/list`);
  }

  async #notified(context: RequestContext, { method, params }: Message): Promise<void> {
    const { requestId: id } = params;
    const client = clientOf(context);
    if (method !== 'notifications/cancelled' || client === undefined) return;
    if (typeof id === 'string' || typeof id === 'number') await this.calls.cancel(client, id);
  }
}

function readOne(value: unknown, context: RequestContext): Message | undefined {
  try {
    return readMessage(value, context);
  } catch (error) {
    throw error instanceof ProtocolError ? httpFault(error, idOf(value)) : error;
  }
}

/** The error response to a request. Rethrows errors that are not of the protocol or have a status. */
function errorResponse(error: unknown, id: Message['id']): Json {
  if (!(error instanceof ProtocolError)) throw error;
  if (error.status !== 200) throw httpFault(error, id);
  return errorOf(id, error);
}

function httpFault(error: ProtocolError, id?: Message['id']): Fault {
  const code = error.status === 404 ? 'NOT_FOUND' : 'INVALID_REQUEST';
  // The error code of Farebox is in the data, as in errors of earlier stages.
  const data = { ...asJson(error.data), code };
  const withCode = new ProtocolError(error.code, error.message, { data });
  return new Fault(code, { message: error.message, body: errorOf(id, withCode) });
}

/** The body of an error before the handler; the HTTP status is the code, outside of those of JSON-RPC. */
function faultBody({ status, code, message, options: { details } }: Fault): Json {
  return errorOf(undefined, new ProtocolError(status, message, { data: { code, details } }));
}

const SERVER_INFO = 'io.modelcontextprotocol/serverInfo';
const CACHEABLE = { ttlMs: LIST_TTL_MS, cacheScope: 'public' };
const NO_PROGRESS = (): void => undefined;
const INSTRUCTIONS =
  'Each tool call is charged to the credit of the calling API key or wallet. The descriptions contain prices; list_models returns the prices of all models, and balance the remaining credit.';

/** The client that may cancel a call: same credential and session. `undefined` without a session. */
function clientOf(context: RequestContext): string | undefined {
  const session = context.header('mcp-session-id');
  if (session === undefined || !SESSION_ID.test(session)) return undefined;
  const { callerIfKnown: caller, address } = context;
  return `${caller === undefined ? address : `${caller.accountId}|${caller.keyId}`}|${session}`;
}

const LOOPBACK = /^https?:\/\/(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?$/;

/**
 * Rejects pages of other origins, unless the settings name the origin, as a protection against DNS
 * rebinding. `*` is ignored, because a rebound page can have any origin.
 */
function requireOrigin(context: RequestContext, { publicUrl, http }: Config): void {
  const origin = context.header('origin');
  if (origin === undefined || LOOPBACK.test(origin)) return;
  if (origin === new URL(publicUrl).origin || http.corsOrigins.includes(origin)) return;
  throw new Fault('UNAUTHORIZED', {
    message: 'This origin is not allowed: add it to http.corsOrigins, or send no Origin header',
  });
}
