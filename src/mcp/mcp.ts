/**
 * `POST /mcp`: the server as a server of the Model Context Protocol, over Streamable HTTP. What the API
 * sells are its tools; a call runs the HTTP route in this process, for the same caller and the same
 * money.
 *
 * Nothing is kept between requests, so any process answers any of them. The key of the header, or a
 * payment in the call, says who pays; who has neither can list the tools and hears what to pay.
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
  /** USD of one search of the web; `undefined` where none is configured. */
  readonly searchPrice: () => string | undefined;
  readonly takesWallets: boolean;
}

const PATH = '/mcp';
/** Media come as base64; who is not known may send a prompt, and not that. */
const STRANGER_LIMIT_BYTES = 1024 * 1024;
const TOOLS_PER_PAGE = 50;
/** How long a client may keep the list: prices can change. */
const LIST_TTL_MS = 60_000;
const MAX_BATCH = 20;
const CURSOR = /^\d{1,9}$/;
const SESSION_ID = /^[\x21-\x7e]{1,128}$/;

/** The server as a feature, and its tools that are paid, as indexes list them. */
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
        rpc: async () => {
          return {
            networks: await networks(),
            usdPerCredit: String(config.current.rpc.usdPerCredit),
          };
        },
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
        strangerLimitBytes: STRANGER_LIMIT_BYTES,
      },
      describe: MCP_DESCRIPTION,
      errors: (fault) => ({ body: fault.options.body ?? refusalOf(fault) }),
      handle: (context) => this.#handle(context),
    };
  }

  async #handle(context: RequestContext): Promise<void> {
    requireOrigin(context, this.#parts.config.current);
    context.set('cache-control', 'no-store');
    const value = await this.#read(context);
    if (Array.isArray(value)) await this.#answerBatch(context, value);
    else await this.#answerOne(context, value);
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

  async #answerOne(context: RequestContext, value: unknown): Promise<void> {
    const message = readOne(value, context);
    if (message?.id === undefined) {
      if (message !== undefined) await this.#notified(context, message);
      return context.empty(202);
    }
    if (message.method === 'tools/call') return this.#answerCall(context, message, message.id);
    await context.json(200, await this.#answerTo(context, message, message.id));
  }

  /** Of a revision of the protocol that had them (2025-03-26): one after the other. */
  async #answerBatch(context: RequestContext, values: readonly unknown[]): Promise<void> {
    if (values.length === 0 || values.length > MAX_BATCH) {
      const text = `A batch has 1 to ${MAX_BATCH} messages; send one message a request`;
      throw httpFault(new ProtocolError(INVALID_REQUEST, text, { status: 400 }));
    }
    const answers: Json[] = [];
    for (const value of values) {
      const answer = await this.#answerInBatch(context, value);
      if (answer !== undefined) answers.push(answer);
    }
    if (answers.length === 0) context.empty(202);
    else await context.json(200, answers);
  }

  /** Says by itself what is wrong with one message: the answers of the others may be paid for. */
  async #answerInBatch(context: RequestContext, value: unknown): Promise<Json | undefined> {
    try {
      const message = readMessage(value, context);
      if (message?.id !== undefined) {
        return resultOf(message.id, this.#signed(message, await this.#result(context, message)));
      }
      if (message !== undefined) await this.#notified(context, message);
      return undefined;
    } catch (error) {
      if (error instanceof ProtocolError) return errorOf(idOf(value), error);
      throw error;
    }
  }

  async #answerTo(
    context: RequestContext,
    message: Message,
    id: NonNullable<Message['id']>,
  ): Promise<Json> {
    try {
      return resultOf(id, this.#signed(message, await this.#result(context, message)));
    } catch (error) {
      return answerOf(error, id);
    }
  }

  /** A call says how far it is, and can be cancelled by a message of its own. */
  async #answerCall(
    context: RequestContext,
    message: Message,
    id: NonNullable<Message['id']>,
  ): Promise<void> {
    const answer = new CallResult(context, this.#parts.clock, message.meta['progressToken']);
    const cancellable = this.calls.begin(clientOf(context), id);
    const signal =
      cancellable === undefined
        ? context.signal
        : AbortSignal.any([context.signal, cancellable.signal]);
    try {
      const tool = await this.#tool(message);
      const run = { tool, message, context, signal, progress: answer.progress };
      const result = await runTool(this.#parts, run);
      await answer.end(resultOf(id, this.#signed(message, result)));
    } catch (error) {
      await answer.end(signal.aborted ? undefined : answerOf(error, id));
    } finally {
      answer.close();
      if (cancellable !== undefined) this.calls.end(cancellable.name);
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
        return runTool(this.#parts, { tool, message, context, signal, progress: UNTOLD });
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

  #signed({ isModern }: Message, result: Json): Json {
    if (!isModern) return result;
    const { _meta: meta } = result;
    return {
      resultType: 'complete',
      ...result,
      _meta: { ...(meta as Json | undefined), [SERVER_INFO]: this.#serverInfo() }, // an object of ours
    };
  }

  /** In one order, so that clients and prompt caches see the same list. */
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
      offered.push({
        name,
        title,
        description,
        inputSchema,
        outputSchema,
        annotations: { title, ...hints },
      });
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

/** The answer to a request that failed. Throws what is no error of the protocol, or has a status. */
function answerOf(error: unknown, id: NonNullable<Message['id']>): Json {
  if (!(error instanceof ProtocolError)) throw error;
  if (error.status !== 200) throw httpFault(error, id);
  return errorOf(id, error);
}

function httpFault(error: ProtocolError, id?: Message['id']): Fault {
  const code = error.status === 404 ? 'NOT_FOUND' : 'INVALID_REQUEST';
  // The code of the catalogue stands in the data, as it does for what a stage refuses.
  const data = { ...asJson(error.data), code };
  const said = new ProtocolError(error.code, error.message, { data });
  return new Fault(code, { message: error.message, body: errorOf(id, said) });
}

/** What a stage before the handler refuses; a code of the application lies outside of JSON-RPC's. */
function refusalOf({ status, code, message, options: { details } }: Fault): Json {
  return errorOf(undefined, new ProtocolError(status, message, { data: { code, details } }));
}

const SERVER_INFO = 'io.modelcontextprotocol/serverInfo';
const CACHEABLE = { ttlMs: LIST_TTL_MS, cacheScope: 'public' };
const UNTOLD = (): void => undefined;
const INSTRUCTIONS =
  'Tools are paid by use, from the credit of the API key or wallet that calls them. Each says its price; list_models says those of all models, and balance what is left.';

/** Who asks, for its own cancellations: nobody can cancel what another credential runs. */
function clientOf(context: RequestContext): string | undefined {
  const session = context.header('mcp-session-id');
  if (session === undefined || !SESSION_ID.test(session)) return undefined;
  const { callerIfKnown: caller, address } = context;
  return `${caller === undefined ? address : `${caller.accountId}|${caller.keyId}`}|${session}`;
}

const LOOPBACK = /^https?:\/\/(?:localhost|127\.0\.0\.1|\[::1\])(?::\d{1,5})?$/;

/**
 * Against DNS rebinding: a page of another origin is no client, unless the settings name its origin.
 * `*` names none, since a page that was rebound has any.
 */
function requireOrigin(context: RequestContext, { publicUrl, http }: Config): void {
  const origin = context.header('origin');
  if (origin === undefined || LOOPBACK.test(origin)) return;
  if (origin === new URL(publicUrl).origin || http.corsOrigins.includes(origin)) return;
  throw new Fault('UNAUTHORIZED', {
    message:
      'This origin may not speak MCP here; its operator can name it in http.corsOrigins, and programs send no Origin',
  });
}
