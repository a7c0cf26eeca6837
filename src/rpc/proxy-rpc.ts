/**
 * The JSON-RPC flow: parse the body, count it against the caller's limits, set the full tier price
 * aside, ask the nodes, and settle by what came back.
 *
 * Order of refusals: body and methods (400), idempotency key (400), requests a minute (429), a
 * stored answer (200, nothing is charged), credits a day (429), balance (402), nodes (503).
 * What is not answered by a node costs nothing and is not stored under the key, whoever gave up
 * first. An answer of which nothing was sent costs nothing either, unless a key keeps it for a retry.
 */
import type { Readable } from 'node:stream';
import type {
  Idempotency,
  IdempotencyToken,
  StoredResponse,
} from '../billing/idempotency/idempotency.ts';
import { parseIdempotencyKey } from '../billing/idempotency/idempotency.ts';
import { type Settlement, expectedSettlement } from '../billing/ledger/ledger.ts';
import type { Caller } from '../identity/identity.ts';
import { Fault } from '../core/faults.ts';
import type { Log } from '../core/log.ts';
import { reasonOf } from '../core/log.ts';
import type { Nano } from '../core/money.ts';
import type { RequestContext } from '../http/request-context.ts';
import type { LimitLog, WindowState } from '../billing/limits/limits.ts';
import type {
  ParsedRequest,
  BodyScan,
  CreditOutcome,
  Credits,
  CreditReservation,
  Rpc,
  RpcResponse,
} from './rpc.ts';
import { requestFingerprint, formatRpcCost, holdLastBytes, KeptResponse } from './rpc.ts';
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

export interface ProxyRpcLimits {
  readonly requestsPerMinute: number;
  readonly staffRequestsPerMinute: number;
  readonly creditsPerDay: number;
}

export interface ProxyRpcParts {
  readonly rpc: Rpc;
  readonly credits: Credits;
  readonly idempotency: Idempotency;
  readonly sales: Sales;
  readonly limitLog: LimitLog;
  readonly log: Log;
  readonly limits: () => ProxyRpcLimits;
}

export interface ProxyRpcCall {
  readonly context: RequestContext;
  readonly network: string;
  readonly body: Buffer;
  readonly scanned?: BodyScan | undefined;
  /** Sends the answer; of a long one, until its last byte has left. */
  readonly send: (context: RequestContext, answer: ProxyRpcResponse) => void | Promise<void>;
}

export interface ProxyRpcResponse extends Omit<RpcResponse, 'kind'> {
  readonly costUsd: string;
  /** The id of the request that a node answered: of the first one, for a replay. */
  readonly requestId: string;
  readonly isReplayed: boolean;
  readonly sale: Sale;
  /** What it left, for the balance headers; missing for a replay. */
  readonly remainingNano: Nano | undefined;
}

/** A counted request on its way, with what has to be given back when it fails. */
interface Run {
  readonly parts: ProxyRpcParts;
  readonly call: ProxyRpcCall;
  readonly body: ParsedRequest;
  readonly sale: Sale;
  readonly token: IdempotencyToken | undefined;
  readonly reservation: CreditReservation;
}

const BUCKET = 'crypto-rpc';
export const RPC_ENDPOINT = 'endpoint:api/v1/crypto/rpc';
const USAGE_KIND = 'rpc';
const JSON_TYPE = 'application/json';
const OWN_LIMIT = { bucket: BUCKET, loggedAs: RPC_ENDPOINT, refusal: requestLimitFault };

export function proxyRpc(parts: ProxyRpcParts, call: ProxyRpcCall): Promise<void> {
  const body = parts.rpc.parse(call.network, call.body, call.scanned);
  const key = parseIdempotencyKey(call.context.headers['idempotency-key']);
  return parts.sales.sell(saleRequest(parts, call, body), (sale) =>
    key === undefined
      ? charge(parts, call, body, { sale, token: undefined })
      : chargeOnce(parts, call, body, sale, key),
  );
}

async function chargeOnce(
  parts: ProxyRpcParts,
  call: ProxyRpcCall,
  body: ParsedRequest,
  sale: Sale,
  key: string,
): Promise<void> {
  const { requestId, caller, leaving } = call.context;
  const stored = await parts.idempotency.once(
    {
      requestId,
      caller: caller.accountId,
      accountId: caller.accountId,
      key,
      fingerprint: await requestFingerprint(body),
      signal: leaving.signal,
      hasBegun: () => call.context.answered,
    },
    (token) => charge(parts, call, body, { sale, token }),
  );
  if (stored !== undefined) await call.send(call.context, replayed(stored, sale));
}

/** Limits: requests a minute and caller; a batch is one request, a replay is one too. */
export function rpcLimit({ limits }: Pick<ProxyRpcParts, 'limits'>, caller: Caller): LimitOf {
  const own = caller.keyLimits.rpcRequestsPerMinute;
  const { requestsPerMinute, staffRequestsPerMinute } = limits();
  const ofPlan = caller.plan === 'staff' ? staffRequestsPerMinute : requestsPerMinute;
  const rate: RateRule = {
    requestsPerMinute: own ?? caller.accountLimits.rpcRequestsPerMinute ?? ofPlan,
    tokensPerMinute: 0,
    type: own === undefined ? 'user' : 'api_key',
  };
  return {
    caller,
    modelId: BUCKET,
    rate,
    ownLimit: OWN_LIMIT,
  };
}

function saleRequest(
  parts: ProxyRpcParts,
  { context, network }: ProxyRpcCall,
  body: ParsedRequest,
): SaleRequest {
  const { caller, requestId, tags } = context;
  return {
    ...rpcLimit(parts, caller),
    requestId,
    kind: USAGE_KIND,
    modelId: network,
    tokensEstimate: 0,
    priceVersion: parts.rpc.priceVersion,
    metadata: tags,
    requireReady: caller.payment && (() => parts.rpc.requireNode(body)),
  };
}

async function charge(
  parts: ProxyRpcParts,
  call: ProxyRpcCall,
  body: ParsedRequest,
  { sale, token }: Pick<Run, 'sale' | 'token'>,
): Promise<void> {
  const reserving = reserveCredits(parts, sale.request.caller, body);
  const reservation = reserving instanceof Promise ? await reserving : reserving;
  const run: Run = { parts, call, body, sale, token, reservation };
  if (token !== undefined) sale.keeper = keeperOf(run, token);
  try {
    // The balance must cover the full tiers before anything is forwarded.
    const fullNano = parts.rpc.cost(body.creditsMax);
    const holding = sale.reserve({ minNano: fullNano, maxNano: fullNano });
    if (holding !== undefined) await holding;
    const answer = await parts.rpc.run(body, {
      caller: sale.request.caller.accountId,
      // What changes the chain, and what a retry will ask for by its key, ends without its caller.
      signal: token === undefined && !body.isWrite ? call.context.leaving : undefined,
    });
    const { kind, rest } = answer;
    if (kind === 'abandoned' || (token === undefined && call.context.leaving.aborted)) {
      rest?.destroy();
      return await release(run, answer);
    }
    if (rest !== undefined) return await sendStream(run, answer, rest);
    // Everything due is on disk before the answer leaves.
    const remainingNano = await settle(run, answer, answer.body);
    const sending = call.send(call.context, answered(run, answer, remainingNano));
    if (sending !== undefined) await sending;
  } catch (error) {
    // The credits of a sale that has ended are those that it used.
    if (sale.state !== 'settled') await giveCreditsBack(run, error);
    throw error;
  }
}

/** A long answer settles when its last bytes are here, and leaves after that. */
async function sendStream(run: Run, answer: RpcResponse, rest: Readable): Promise<void> {
  const { sale, call, token } = run;
  const { rpc } = run.parts;
  const kept = new KeptResponse(rpc.budget, sale.request.caller.accountId);
  if (token === undefined) kept.drop();
  kept.add(answer.body);
  let settling: Promise<unknown> | undefined;
  const settleAll = async (): Promise<void> => {
    settling ??= settle(run, answer, kept.body());
    await settling;
  };
  const held = holdLastBytes(rest, settleAll, (chunk) => kept.add(chunk));
  const { after } = expectedSettlement(sale.hold, rpc.cost(answer.credits));
  try {
    await call.send(call.context, answered(run, { ...answer, rest: held }, after.usdNano));
  } catch (error) {
    held.destroy();
    // A node that broke off ended the response, so that the caller looks as if it had left.
    if (rest.errored !== null && !isPrematureClose(rest.errored)) throw error;
    if (settling !== undefined) await settling;
    // Destroyed without a cause of its own: nobody but the caller ends a stream that way.
    const hasLeft = call.context.leaving.aborted || isPrematureClose(error);
    if (!hasLeft) throw error;
    if (settling !== undefined) return;
    if (token === undefined) return void (await settle(run, answer, undefined, 'aborted'));
    await keepRest(rest, kept);
    await settleAll();
  } finally {
    rest.destroy();
    kept.drop();
  }
}

/** A retry will ask by its key for what its caller left, and pays no second time: not for a part either. */
async function keepRest(rest: Readable, kept: KeptResponse): Promise<void> {
  if (rest.readableEnded) return;
  // Its caller took all the time that there is.
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
 * Charges what a node answered, and gives the other credits back. A missing body is too large to be
 * kept. `aborted`: the caller left after the first bytes of an answer that no key keeps.
 */
async function settle(
  run: Run,
  answer: RpcResponse,
  body: Buffer | undefined,
  status: 'completed' | 'aborted' = 'completed',
): Promise<Nano> {
  const { parts, sale, token } = run;
  const { credits } = answer;
  const costNano = parts.rpc.cost(credits);
  const outcome: Outcome = { costNano, status, ...countsOf(run, answer) };
  let settled: Pick<Settlement, 'after'>;
  if (token === undefined) settled = await sale.settle(outcome);
  else settled = await sale.answer(outcome, ({ after }) => ({ type: JSON_TYPE, body, after }));
  const correcting = parts.credits.correct(run.reservation, credits);
  if (correcting !== undefined) await correcting;
  return settled.after.usdNano;
}

/** Ends a request whose caller left before any of an answer was sent: nothing is charged. */
async function release(run: Run, answer: RpcResponse): Promise<void> {
  const counts = countsOf(run, { ...answer, credits: 0 });
  await run.sale.release({ status: 'aborted', ...counts });
  await run.parts.credits.correct(run.reservation, 0);
}

function countsOf(
  { body }: Run,
  { credits, retries }: RpcResponse,
): Pick<Outcome, 'attempts' | 'extras'> {
  return { attempts: retries + 1, extras: { credits, items: body.calls.length } };
}

/** Keeps what a node answered under the key of the request, in the transaction that charges it. */
function keeperOf({ parts, call }: Run, token: IdempotencyToken): ResponseKeeper {
  const { idempotency } = parts;
  return {
    keep: (tx, { body: given }, sold) => {
      assert(sold !== undefined, 'the response of a node is sold');
      const { costNano, extras } = sold.outcome;
      const headers = {
        credits: String(extras?.['credits']),
        cost: formatRpcCost(costNano),
        requestId: call.context.requestId,
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

async function giveCreditsBack(run: Run, after: unknown): Promise<void> {
  try {
    await run.parts.credits.correct(run.reservation, 0);
  } catch (error) {
    // They leave the window by themselves; the first error is the caller's.
    const { context, network } = run.call;
    const fields = {
      requestId: context.requestId,
      network,
      reason: reasonOf(error),
      after: reasonOf(after),
    };
    run.parts.log.error(fields, 'The credits of a request could not be given back');
  }
}

function answered(run: Run, answer: RpcResponse, remainingNano: Nano): ProxyRpcResponse {
  return {
    ...answer,
    costUsd: formatRpcCost(run.parts.rpc.cost(answer.credits)),
    requestId: run.call.context.requestId,
    isReplayed: false,
    sale: run.sale,
    remainingNano,
  };
}

function replayed(stored: StoredResponse, sale: Sale): ProxyRpcResponse {
  return {
    body: stored.body,
    rest: undefined,
    credits: Number(stored.headers['credits']),
    costUsd: stored.headers['cost'] ?? '',
    requestId: stored.headers['requestId'] ?? '',
    isReplayed: true,
    retries: 0,
    sale,
    remainingNano: undefined,
  };
}

function requestLimitFault(state: WindowState): Fault {
  const resetSeconds = Math.ceil(state.resetsAtMs / 1_000);
  // No Retry-After: ethers reads it as milliseconds and burns its retries in an instant.
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
 * The cap on credits of 24 hours, and whose requests count against it: those of a key with a cap of
 * its own, with those of the keys that have it from that key, or else those of the account.
 */
export function creditCap(
  { limits }: Pick<ProxyRpcParts, 'limits'>,
  { accountId, keyId, limitKeyId = keyId, keyLimits, accountLimits }: Caller,
): { readonly counted: string; readonly cap: number } {
  const { rpcCreditsPerDay: capOfKey } = keyLimits;
  if (capOfKey !== undefined) return { counted: limitKeyId, cap: capOfKey };
  return { counted: accountId, cap: accountLimits.rpcCreditsPerDay ?? limits().creditsPerDay };
}

function reserveCredits(
  parts: ProxyRpcParts,
  caller: Caller,
  body: ParsedRequest,
): CreditReservation | Promise<CreditReservation> {
  const { counted, cap } = creditCap(parts, caller);
  const outcome = parts.credits.reserve(counted, body.creditsMax, cap);
  if (outcome instanceof Promise)
    return outcome.then((one) => granted(parts, caller, body, cap, one));
  return granted(parts, caller, body, cap, outcome);
}

function granted(
  parts: ProxyRpcParts,
  caller: Caller,
  body: ParsedRequest,
  cap: number,
  outcome: CreditOutcome,
): CreditReservation {
  if (outcome.ok) return outcome.reservation;
  logCredits(parts, caller);
  throw new Fault('RATE_LIMIT_EXCEEDED', {
    message: 'The limit of RPC credits is reached',
    fields: {
      customMessage: `The cap of ${cap} RPC credits per rolling 24 hours leaves no room for the ${body.creditsMax} credits of this request: ${outcome.usedCredits} are used`,
    },
  });
}

function logCredits({ limitLog }: ProxyRpcParts, { accountId, keyId, plan }: Caller): void {
  limitLog.add({ accountId, keyId, modelId: RPC_ENDPOINT, tier: plan, type: 'RPD' });
}
