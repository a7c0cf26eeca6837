/**
 * The JSON-RPC endpoint: parses the body, counts it against the caller's limits, places a hold for
 * the full tiers, calls the nodes, and settles by their replies.
 *
 * Order of checks: body and methods (400), idempotency key (400), requests per minute (429), stored
 * response (200, not charged), credits per day (429), balance (402), nodes (503). A request without
 * a node's reply is neither charged nor stored under its key. A response of which no byte was sent
 * is not charged either, unless it is stored under a key for a retry.
 */
import type { Readable } from 'node:stream';
import type { Idempotency, IdempotencyToken } from '../billing/idempotency/idempotency.ts';
import { parseIdempotencyKey } from '../billing/idempotency/idempotency.ts';
import { type Settlement, expectedSettlement } from '../billing/ledger/ledger.ts';
import type { Caller } from '../identity/identity.ts';
import { Fault } from '../core/faults.ts';
import type { Log } from '../core/log.ts';
import { reasonOf } from '../core/log.ts';
import type { Nano } from '../core/money.ts';
import type { RequestContext } from '../http/request-context.ts';
import type { ResponseHeaders } from '../http/response-headers.ts';
import type { RpcLimits } from '../config/config.ts';
import type { LimitLog, WindowState } from '../billing/limits/limits.ts';
import type { CreditReservation, Credits } from './credits.ts';
import { type BodyScan, type ParsedRequest, requestFingerprint } from './parse-request.ts';
import { KeptResponse, type RpcResponse, delayLastBytes } from './rpc-response.ts';
import { type CreditPrice, type Rpc, formatRpcCost } from './rpc.ts';
import {
  type ResponseKeeper,
  type LimitOf,
  type Outcome,
  type RateRule,
  type Sale,
  type SaleRequest,
  type Sales,
  paidFor,
} from '../billing/sale.ts';
import { assert } from '../core/assert.ts';

export interface ProxyRpcParts {
  readonly rpc: Rpc;
  readonly credits: Credits;
  readonly idempotency: Idempotency;
  readonly sales: Sales;
  readonly limitLog: LimitLog;
  readonly log: Log;
  /** The limits of a plan. */
  readonly limits: (plan: string) => RpcLimits;
  readonly headers: Pick<ResponseHeaders, 'counted'>;
  /** Names of response headers. */
  readonly names: { readonly credits: string; readonly costUsd: string };
}

interface PricedCall {
  readonly parts: ProxyRpcParts;
  readonly context: RequestContext;
  readonly body: ParsedRequest;
  readonly price: CreditPrice;
}

interface Run extends PricedCall {
  readonly sale: Sale;
  readonly token: IdempotencyToken | undefined;
  readonly reservation: CreditReservation;
}

const BUCKET = 'crypto-rpc';
export const RPC_ENDPOINT = 'endpoint:api/v1/crypto/rpc';
const JSON_TYPE = 'application/json';
const OWN_LIMIT = { bucket: BUCKET, loggedAs: RPC_ENDPOINT, refusal: requestLimitFault };

export function proxyRpc(
  parts: ProxyRpcParts,
  context: RequestContext,
  bytes: Buffer,
  scanned?: BodyScan,
): Promise<void> {
  const body = parts.rpc.parse(context.parameters['network'] ?? '', bytes, scanned);
  const key = parseIdempotencyKey(context.headers['idempotency-key']);
  const { prices } = context.caller;
  const price = prices === undefined ? parts.rpc.listPrice : parts.rpc.ownPrice(prices);
  const priced = { parts, context, body, price };
  return parts.sales.sell(saleRequest(priced), (sale) =>
    key === undefined ? charge(priced, sale) : chargeOnce(priced, sale, key),
  );
}

async function chargeOnce(priced: PricedCall, sale: Sale, key: string): Promise<void> {
  const { parts, context, body } = priced;
  const { requestId, caller, leaving } = context;
  const stored = await parts.idempotency.once(
    {
      requestId,
      caller: caller.accountId,
      accountId: caller.accountId,
      key,
      fingerprint: await requestFingerprint(body),
      signal: leaving.signal,
      hasBegun: () => context.answered,
    },
    (token) => charge(priced, sale, token),
  );
  if (stored === undefined) return;
  const { headers, body: bytes } = stored;
  const { credits = '', cost: costUsd = '', requestId: firstId = '' } = headers;
  setHeaders(priced, sale, { credits, costUsd });
  context.set('x-request-id', firstId);
  context.set('idempotent-replayed', 'true');
  await context.bytes(200, JSON_TYPE, bytes);
}

/** Requests per minute and caller; a batch counts as one request, and so does a replay. */
export function rpcLimit({ limits }: Pick<ProxyRpcParts, 'limits'>, caller: Caller): LimitOf {
  const own = caller.keyLimits.rpcRequestsPerMinute;
  const given = own ?? caller.accountLimits.rpcRequestsPerMinute;
  const rate: RateRule = {
    requestsPerMinute: given ?? limits(caller.plan).requestsPerMinute,
    tokensPerMinute: 0,
    type: own === undefined ? 'user' : 'api_key',
  };
  return { caller, modelId: BUCKET, rate, ownLimit: OWN_LIMIT };
}

function saleRequest({ parts, context, body, price }: PricedCall): SaleRequest {
  const { caller, requestId, tags } = context;
  return {
    ...rpcLimit(parts, caller),
    requestId,
    kind: 'rpc',
    modelId: body.network.slug,
    tokensEstimate: 0,
    priceVersion: price.version,
    metadata: tags,
    requireReady: caller.payment && (() => parts.rpc.requireNode(body)),
  };
}

async function charge(priced: PricedCall, sale: Sale, token?: IdempotencyToken): Promise<void> {
  const { parts, context, body, price } = priced;
  const { caller } = sale.request;
  const { counted, cap } = creditCap(parts, caller);
  const reserving = parts.credits.reserve(counted, body.creditsMax, cap);
  const reserved = reserving instanceof Promise ? await reserving : reserving;
  if (!reserved.ok) throw creditFault(priced, caller, cap, reserved.usedCredits);
  const run: Run = { ...priced, sale, token, reservation: reserved.reservation };
  if (token !== undefined) sale.keeper = keeperOf(run, token);
  try {
    // The balance must cover the full tiers before any call is forwarded.
    const fullNano = parts.rpc.cost(body.creditsMax, price);
    const holding = sale.reserve({ minNano: fullNano, maxNano: fullNano });
    if (holding !== undefined) await holding;
    const response = await parts.rpc.run(body, {
      caller: caller.accountId,
      tries: context,
      // Writes, and requests with an idempotency key (a retry needs their response), continue
      // without the caller.
      signal: token === undefined && !body.isWrite ? context.leaving : undefined,
    });
    const { kind, rest } = response;
    if (kind === 'abandoned' || (token === undefined && context.leaving.aborted)) {
      rest?.destroy();
      return await release(run, response);
    }
    if (rest !== undefined) return await sendStream(run, response, rest);
    // Commit the charge before the response is sent.
    const remainingNano = await settle(run, response, response.body);
    setResponseHeaders(run, response, remainingNano);
    const sending = context.bytes(200, JSON_TYPE, response.body);
    if (sending !== undefined) await sending;
  } catch (error) {
    // A settled sale has already returned its unused credits.
    if (sale.state !== 'settled') await correctCredits(run, 0);
    throw error;
  }
}

/** Settles a stream when its last bytes have arrived, before they are sent. */
async function sendStream(run: Run, response: RpcResponse, rest: Readable): Promise<void> {
  const { sale, context, token } = run;
  const { rpc } = run.parts;
  const kept = new KeptResponse(rpc.budget, sale.request.caller.accountId);
  if (token === undefined) kept.drop();
  kept.add(response.body);
  let settling: Promise<unknown> | undefined;
  const settleAll = async (): Promise<void> => {
    settling ??= settle(run, response, kept.body());
    await settling;
  };
  const delayed = delayLastBytes(rest, settleAll, (chunk) => kept.add(chunk));
  const { after } = expectedSettlement(sale.hold, rpc.cost(response.credits, run.price));
  try {
    setResponseHeaders(run, response, after.usdNano);
    await context.sendAll(200, JSON_TYPE, response.body, delayed);
  } catch (error) {
    delayed.destroy();
    // A node that breaks off ends the response, which looks like a disconnect of the caller.
    if (rest.errored !== null && !isPrematureClose(rest.errored)) throw error;
    if (settling !== undefined) await settling;
    // Destroyed without an error: only the caller ends a stream that way.
    const hasLeft = context.leaving.aborted || isPrematureClose(error);
    if (!hasLeft) throw error;
    if (settling !== undefined) return;
    if (token === undefined) return void (await settle(run, response, undefined, 'aborted'));
    await keepRest(rest, kept);
    await settleAll();
  } finally {
    rest.destroy();
    kept.drop();
  }
}

/**
 * Reads the rest of a response that its caller left, so that a retry receives it without a second
 * charge. A partial response is not kept.
 */
async function keepRest(rest: Readable, kept: KeptResponse): Promise<void> {
  if (rest.readableEnded) return;
  // The caller used up the time limit.
  if (rest.destroyed) return kept.drop();
  for await (const chunk of rest) {
    kept.add(chunk);
    if (!kept.isWhole) return;
  }
}

function isPrematureClose(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ERR_STREAM_PREMATURE_CLOSE';
}

/**
 * Charges for the nodes' replies and returns the other credits. `body` is missing if it is too
 * large to store. `aborted`: the caller disconnected after the first bytes of a response without a
 * key.
 */
async function settle(
  run: Run,
  response: RpcResponse,
  body: Buffer | undefined,
  status: 'completed' | 'aborted' = 'completed',
): Promise<Nano> {
  const { parts, sale, price, token } = run;
  const { credits } = response;
  const costNano = parts.rpc.cost(credits, price);
  const outcome: Outcome = { costNano, status, ...countsOf(run, response) };
  let settled: Pick<Settlement, 'after'>;
  if (token === undefined) settled = await sale.settle(outcome);
  else settled = await sale.answer(outcome, ({ after }) => ({ type: JSON_TYPE, body, after }));
  const correcting = correctCredits(run, credits);
  if (correcting !== undefined) await correcting;
  return settled.after.usdNano;
}

/** Ends a request whose caller disconnected before any byte was sent: nothing is charged. */
async function release(run: Run, response: RpcResponse): Promise<void> {
  const counts = countsOf(run, { ...response, credits: 0 });
  await run.sale.release({ status: 'aborted', ...counts });
  await correctCredits(run, 0);
}

function countsOf(
  { body }: Run,
  { credits, retries }: RpcResponse,
): Pick<Outcome, 'attempts' | 'extras'> {
  return { attempts: retries + 1, extras: { credits, items: body.calls.length } };
}

/** Stores the response under the key of the request, in the transaction that charges it. */
function keeperOf({ parts, context }: Run, token: IdempotencyToken): ResponseKeeper {
  const { idempotency } = parts;
  return {
    keep: (tx, { body: given }, sold) => {
      assert(sold !== undefined, 'the response of a node is sold');
      const { costNano, extras } = sold.outcome;
      const headers = {
        credits: String(extras?.['credits']),
        cost: formatRpcCost(costNano),
        requestId: context.requestId,
      };
      const body = typeof given === 'string' ? Buffer.from(given, 'latin1') : given;
      return idempotency.complete(token, { status: 200, headers, body }, tx, paidFor(sold));
    },
    kept: () => {
      token.isSpent = true;
    },
    charged: { fence: token, spend: (tx, paidNano) => idempotency.spend(token, tx, paidNano) },
  };
}

/** Returns unused credits. Does not fail: they expire with their minute, and a charge is not undone. */
function correctCredits(
  { parts, context, body, reservation }: Run,
  usedCredits: number,
): void | Promise<void> {
  return parts.credits.correct(reservation, usedCredits)?.catch((error: unknown) => {
    const { requestId } = context;
    const fields = { requestId, network: body.network.slug, reason: reasonOf(error) };
    parts.log.error(fields, 'The unused credits of a request could not be returned');
  });
}

function setResponseHeaders(
  run: Run,
  { credits, retries }: RpcResponse,
  remainingNano: Nano,
): void {
  const costUsd = formatRpcCost(run.parts.rpc.cost(credits, run.price));
  setHeaders(run, run.sale, { credits, costUsd }, remainingNano);
  if (retries > 0) run.context.set('x-retry-count', retries);
}

/** `remainingNano` is missing for a replay. */
function setHeaders(
  { parts: { headers, names }, context }: PricedCall,
  sale: Sale,
  { credits, costUsd }: { readonly credits: number | string; readonly costUsd: string },
  remainingNano?: Nano,
): void {
  context.notes.model = sale.request.modelId;
  context.notes.costUsd = costUsd;
  context.set(names.credits, credits);
  context.set(names.costUsd, costUsd);
  headers.counted(sale, remainingNano, context.answerHeaders);
}

function requestLimitFault(state: WindowState): Fault {
  const resetSeconds = Math.ceil(state.resetsAtMs / 1_000);
  // No Retry-After: ethers reads it as milliseconds and would use up its retries at once.
  return new Fault('RATE_LIMIT_EXCEEDED', {
    message: 'The rate limit for RPC requests is reached',
    fields: {
      customMessage: `The limit of ${state.requestLimit} RPC requests per minute is reached: a batch of up to 100 calls counts as one request`,
    },
    headers: {
      'x-ratelimit-limit': String(state.requestLimit),
      'x-ratelimit-remaining': String(state.requestsLeft),
      'x-ratelimit-reset': String(resetSeconds),
    },
  });
}

/**
 * The cap on credits in 24 hours and the holder of the count: a key with its own cap (shared with
 * the keys that inherited it), otherwise the account.
 */
export function creditCap(
  { limits }: Pick<ProxyRpcParts, 'limits'>,
  { accountId, keyId, limitKeyId = keyId, keyLimits, accountLimits, plan }: Caller,
): { readonly counted: string; readonly cap: number } {
  const { rpcCreditsPerDay: capOfKey } = keyLimits;
  if (capOfKey !== undefined) return { counted: limitKeyId, cap: capOfKey };
  return { counted: accountId, cap: accountLimits.rpcCreditsPerDay ?? limits(plan).creditsPerDay };
}

/** 429, because the full tiers exceed the cap. */
function creditFault(
  { parts, body }: PricedCall,
  { accountId, keyId, plan }: Caller,
  cap: number,
  usedCredits: number,
): Fault {
  parts.limitLog.add({ accountId, keyId, modelId: RPC_ENDPOINT, tier: plan, type: 'RPD' });
  return new Fault('RATE_LIMIT_EXCEEDED', {
    message: 'The limit of RPC credits is reached',
    fields: {
      customMessage: `This request needs ${body.creditsMax} RPC credits, and ${usedCredits} of the ${cap} per rolling 24 hours are used`,
    },
  });
}
