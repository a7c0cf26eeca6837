/**
 * Runs a tool for its caller and returns the result. Payments use the MCP transport of x402: the
 * requirements are a result with `isError` (or `payment_required` for a client with the extension),
 * the payment is in `_meta["x402/payment"]` of the call, and the settlement in
 * `_meta["x402/payment-response"]` of the result. They are passed to the HTTP routes as headers.
 */
import { parsedJson } from '../json/json-text.ts';
import type { Clock } from '../core/clock.ts';
import { type Log, reasonOf } from '../core/log.ts';
import {
  ResponseTooLarge,
  type CallRoute,
  type InternalResponse,
  readResponse,
} from '../http/internal-call.ts';
import type { RequestContext } from '../http/request-context.ts';
import type { ConfigInForce } from '../config/config.ts';
import type { Caller } from '../identity/identity.ts';
import { isJsonObject } from '../json/json-scan.ts';
import { discovered } from './bazaar.ts';
import { challengeMeta, credentialHeader, receiptMeta } from './machine-payment.ts';
import {
  INTERNAL_ERROR,
  type Json,
  type Message,
  ProtocolError,
  invalidParams,
} from './protocol.ts';
import {
  type RouteRequest,
  RouteError,
  type Tool,
  type ToolCall,
  type ToolResult,
  asJson,
  failure,
  structured,
} from './tool.ts';

export interface RunToolParts {
  readonly config: ConfigInForce;
  readonly call: CallRoute;
  readonly clock: Clock;
  readonly log: Log;
}

export interface ToolRun {
  readonly tool: Tool;
  readonly message: Message;
  readonly context: RequestContext;
  readonly signal: AbortSignal;
  readonly progress: ToolCall['progress'];
}

const PAYMENT = 'x402/payment';
const PAYMENT_RESPONSE = 'x402/payment-response';
const CLAIM = 'payment-claim';
const IDEMPOTENCY = 'idempotency-key';
const BOUND_NONCE = 'bound-nonce';
const PAYMENT_EXTENSION = 'org.x402/payment';
/** Above the limit of a payment header; the route rejects a truncated one. */
const MAX_PAYMENT_CHARS = 16_384;
/** Above the limit of tags; the route rejects truncated ones. */
const MAX_TAGS_CHARS = 16_384;
const MAX_ERROR_BYTES = 1024 * 1024;

/** Codes of an invalid payment, after which another one may be tried, because no money has moved. */
const BAD_PAYMENT =
  /^INVALID_PAYMENT(?:$|_)|^(?:UNSUPPORTED_(?:NETWORK|TOKEN|SCHEME)|INVALID_AMOUNT|AMOUNT_TOO_(?:LOW|HIGH)|PAYMENT_VERIFICATION_FAILED|SETTLEMENT_FAILED)$/;

function paymentOf(meta: Json): Readonly<Record<string, string>> | undefined {
  const payment = meta[PAYMENT];
  const header =
    payment === undefined
      ? credentialHeader(meta)
      : (['payment-signature', encoded(payment)] as const);
  if (header === undefined) return undefined;
  const [name, value] = header;
  return { [name]: value.slice(0, MAX_PAYMENT_CHARS) };
}

/** The payer of a run, and `_meta` of its result. */
interface Attempt extends ToolRun {
  readonly caller: Caller | undefined;
  /** The payment of the call as a header; it determines the account. */
  readonly payment: Readonly<Record<string, string>> | undefined;
  readonly meta: Record<string, unknown>;
}

/**
 * Returns the result of `tools/call`. Throws `ProtocolError` if the arguments are not an object and
 * for a bug, and rejects if the signal aborts.
 */
export async function runTool(parts: RunToolParts, run: ToolRun): Promise<Json> {
  const { tool, message, context, signal } = run;
  const payment = tool.isPaid === true ? paymentOf(message.meta) : undefined;
  const caller = payment === undefined ? context.callerIfKnown : undefined;
  const meta: Record<string, unknown> = {};
  const attempt = { ...run, caller, payment, meta };
  let result: Json;
  try {
    result = { ...(await attemptTool(parts, attempt)) };
  } catch (error) {
    if (signal.aborted || error instanceof ProtocolError) throw error;
    result = await errorResult(parts, attempt, error);
  }
  return Object.keys(meta).length === 0 ? result : { ...result, _meta: meta };
}

function attemptTool(parts: RunToolParts, attempt: Attempt): Promise<ToolResult> {
  const { tool, message, progress, signal } = attempt;
  const { arguments: given = {} } = message.params;
  if (!isJsonObject(given)) throw invalidParams('params.arguments must be an object');
  const run = (request: RouteRequest): Promise<InternalResponse> =>
    runRoute(parts, attempt, request);
  return tool.run(given, { run, progress, signal, clock: parts.clock });
}

async function runRoute(
  { call, config }: RunToolParts,
  { message, context, signal, caller, payment, meta }: Attempt,
  { method = 'POST', path, body }: RouteRequest,
): Promise<InternalResponse> {
  const tagsName = `x-${config.current.service.name}-metadata`;
  const tags = tagsOf(message.meta[tagsName], context.header(tagsName));
  const key = message.meta[IDEMPOTENCY] ?? context.header(IDEMPOTENCY);
  const claim = message.meta[CLAIM];
  const sent = bytesOf(body);
  const response = await call({
    caller,
    method,
    path,
    headers: {
      ...(sent && { 'content-type': sent.type }),
      ...payment,
      ...(typeof key === 'string' && method === 'POST' ? { [IDEMPOTENCY]: headerText(key) } : {}),
      ...(typeof claim === 'string' ? { [CLAIM]: headerText(claim) } : {}),
      ...(tags === undefined ? {} : { [tagsName]: tags }),
    },
    ...(sent && { body: sent.bytes }),
    signal,
    address: context.address,
    country: context.country,
    countsFailures: true,
  });
  addMeta(response, meta);
  // 202: a payment that is not settled yet.
  if (response.status < 400 && response.status !== 202) return response;
  const bytes = await readResponse(response, MAX_ERROR_BYTES);
  throw new RouteError(response, parsedJson(bytes.toString()));
}

function bytesOf(body: RouteRequest['body']): { type: string; bytes: Buffer } | undefined {
  if (body === undefined) return undefined;
  const { type, bytes } = body;
  if (typeof type === 'string' && Buffer.isBuffer(bytes)) return { type, bytes };
  return { type: 'application/json', bytes: Buffer.from(JSON.stringify(body)) };
}

function encoded(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString('base64');
}

/** Replaces characters that a header cannot contain, so that the route rejects the value. */
function headerText(text: string): string {
  return text.slice(0, 1_000).replaceAll(/[^\x20-\x7e]/g, '?');
}

/** The tags of a call as a header; they take precedence over those of its HTTP request. */
function tagsOf(ofCall: unknown, ofRequest: string | undefined): string | undefined {
  if (ofCall === undefined) return ofRequest;
  // Node reads the bytes of a header as Latin-1.
  const others = parsedJson(Buffer.from(ofRequest ?? '{}', 'latin1').toString());
  // The route rejects an invalid header.
  if (!isJsonObject(others)) return ofRequest;
  const tags = JSON.stringify(isJsonObject(ofCall) ? { ...others, ...ofCall } : ofCall);
  const bytes = Buffer.from(tags.slice(0, MAX_TAGS_CHARS).replaceAll('\x7f', String.raw`\u007f`));
  return bytes.toString('latin1');
}

/** Copies headers of a response to `_meta` of the result. */
function addMeta({ headers }: InternalResponse, meta: Record<string, unknown>): void {
  const { 'x-request-id': id, 'payment-response': settlement, [CLAIM]: claim } = headers;
  if (id !== undefined) meta['x-request-id'] = id;
  if (typeof settlement === 'string') meta[PAYMENT_RESPONSE] = decoded(settlement);
  if (typeof claim === 'string') meta[CLAIM] = claim;
  Object.assign(meta, receiptMeta(headers['payment-receipt']));
  if (headers['idempotent-replayed'] !== undefined) meta['idempotent-replayed'] = true;
}

function decoded(header: string): unknown {
  return parsedJson(Buffer.from(header, 'base64').toString());
}

/** The result of a tool that has failed. */
async function errorResult(parts: RunToolParts, attempt: Attempt, error: unknown): Promise<Json> {
  const { tool, payment } = attempt;
  if (error instanceof ResponseTooLarge) return { ...failure(error.message) };
  if (!(error instanceof RouteError)) {
    parts.log.error({ tool: tool.name, reason: reasonOf(error) }, 'A tool failed');
    throw new ProtocolError(INTERNAL_ERROR, 'Internal error of the server');
  }
  const { message, code } = error;
  const offer = offerOf(error);
  if (tool.isPaid === true && offer !== undefined) {
    Object.assign(attempt.meta, challengeMeta(error.response.headers['www-authenticate']));
    return paymentRequired(attempt, offer);
  }
  if (payment !== undefined && BAD_PAYMENT.test(code)) {
    const fresh = await freshOffer(parts, attempt);
    if (fresh !== undefined) return paymentRequired(attempt, { ...fresh, error: message });
  }
  const seconds = error.response.headers['retry-after'];
  const wait = seconds === undefined ? '' : `; try again in ${seconds} s`;
  return { ...failure(`${message}${wait}${code === '' ? '' : ` (${code})`}`) };
}

function offerOf({ response }: RouteError): Json | undefined {
  const header = response.headers['payment-required'];
  return typeof header === 'string' ? asJson(decoded(header)) : undefined;
}

/** The current payment requirements: an anonymous call of the tool, which is rejected before it has an effect. */
async function freshOffer(parts: RunToolParts, attempt: Attempt): Promise<Json | undefined> {
  try {
    await attemptTool(parts, { ...attempt, caller: undefined, payment: undefined, meta: {} });
  } catch (error) {
    if (error instanceof RouteError) return offerOf(error);
    throw error;
  }
  return undefined;
}

function paymentRequired({ tool, message }: ToolRun, offer: Json): Json {
  const { name, title: description } = tool;
  const url = `mcp://tool/${name}`;
  const resource = { ...asJson(offer['resource']), url, description, mimeType: 'application/json' };
  // A nonce is bound to the URL of the route, which this resource does not have.
  const { [BOUND_NONCE]: _, ...offered } = asJson(offer['extensions']);
  const extensions = { ...offered, bazaar: discovered(tool) };
  const required = { ...offer, resource, extensions };
  const { extensions: known } = message.capabilities;
  if (message.isModern && asJson(known)[PAYMENT_EXTENSION] !== undefined) {
    return { resultType: 'payment_required', paymentRequired: required };
  }
  return { ...structured(required), isError: true };
}

/** Capability of a server that accepts payments. */
export const PAYMENT_CAPABILITY = { extensions: { [PAYMENT_EXTENSION]: {} } };
