/**
 * The JSON-RPC flow: admit the body, count it against the caller's limits, set the full tier price
 * aside, ask the nodes, and settle by what came back.
 *
 * Order of refusals: body and methods (400), idempotency key (400), requests a minute (429), a
 * stored answer (200, nothing is charged), credits a day (429), balance (402), nodes (500, 503).
 * What is not answered by a node costs nothing and is not stored under the key.
 */
import { finished } from 'node:stream';
import type { Readable } from 'node:stream';
import type {
  Idempotency,
  IdempotencyToken,
  StoredAnswer,
} from '../billing/idempotency/idempotency.ts';
import { MAX_STORED_BYTES, parseIdempotencyKey } from '../billing/idempotency/idempotency.ts';
import type { Caller } from '../identity/identity.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import type { Log } from '../core/log.ts';
import { reasonOf } from '../core/log.ts';
import type { Nano } from '../core/money.ts';
import type { LimitLog, Windows, WindowState } from '../billing/limits/limits.ts';
import type {
  Admission as RpcAdmission,
  BodyScan,
  CreditCap,
  CreditReservation,
  Rpc,
  RpcAnswer,
} from './rpc.ts';
import { admissionFingerprint, formatRpcCost, holdLastBytes } from './rpc.ts';
import type { Admission, Charge, RateRule } from '../billing/sale.ts';

export interface ProxyRpcLimits {
  readonly requestsPerMinute: number;
  readonly staffRequestsPerMinute: number;
  readonly creditsPerDay: number;
}

export interface ProxyRpcParts {
  readonly rpc: Rpc;
  readonly creditCap: CreditCap;
  readonly idempotency: Idempotency;
  readonly charge: Charge;
  readonly windows: Windows;
  readonly limitLog: LimitLog;
  readonly clock: Clock;
  readonly log: Log;
  readonly limits: () => ProxyRpcLimits;
}

export interface ProxyRpcCall {
  readonly requestId: string;
  readonly caller: Caller;
  readonly network: string;
  readonly body: Buffer;
  /** Of a body that was scanned already. */
  readonly scanned?: BodyScan | undefined;
  /** The header `Idempotency-Key` as it came. */
  readonly idempotencyKey: string | undefined;
  readonly signal: AbortSignal;
}

/** What the answer of the route is made of; the status is 200. */
export interface ProxyRpcAnswer {
  readonly body: Buffer;
  /** Follows `body`; destroy it when the caller leaves. */
  readonly rest: Readable | undefined;
  readonly credits: number;
  /** USD with eight decimals. */
  readonly costUsd: string;
  /** The id of the request that a node answered: of the first one, for a replay. */
  readonly requestId: string;
  readonly isReplayed: boolean;
  readonly retries: number;
  /** The hold and what it left, for the balance headers; missing for a replay. */
  readonly charged: { readonly admission: Admission; readonly remainingNano: Nano } | undefined;
}

/** The window of a request on its way: everything that has to be given back when it fails. */
interface Run {
  readonly parts: ProxyRpcParts;
  readonly call: ProxyRpcCall;
  readonly body: RpcAdmission;
  readonly token: IdempotencyToken | undefined;
  readonly reservation: CreditReservation;
  readonly admission: Admission;
}

/** The price of a credit is in the answer; limits of tokens do not apply. */
const NO_RATE: RateRule = { requestsPerMinute: 0, tokensPerMinute: 0, type: 'user' };
const USAGE_KIND = 'rpc';

/** Runs one request of `POST /crypto/rpc/{network}`. Throws a Fault for every refusal. */
export async function proxyRpc(parts: ProxyRpcParts, call: ProxyRpcCall): Promise<ProxyRpcAnswer> {
  const body = parts.rpc.admit(call.network, call.body, call.scanned);
  const key = parseIdempotencyKey(call.idempotencyKey);
  await countRequest(parts, call);
  if (key === undefined) return charge(parts, call, body, undefined);
  const got = await parts.idempotency.acquire({
    caller: call.caller.accountId,
    key,
    fingerprint: await admissionFingerprint(body),
    signal: call.signal,
  });
  if (got.state === 'replay') return replayed(got.answer);
  return charge(parts, call, body, got.token);
}

async function charge(
  parts: ProxyRpcParts,
  call: ProxyRpcCall,
  body: RpcAdmission,
  token: IdempotencyToken | undefined,
): Promise<ProxyRpcAnswer> {
  let reservation: CreditReservation | undefined;
  let run: Run;
  try {
    reservation = await reserveCredits(parts, call, body);
    const admission = await parts.charge.admit(chargeRequest(parts, call, body));
    run = { parts, call, body, token, reservation, admission };
  } catch (error) {
    if (reservation !== undefined) await parts.creditCap.correct(reservation, 0);
    if (token !== undefined) await parts.idempotency.abandon(token);
    throw error;
  }
  try {
    const answer = await parts.rpc.run(body, {
      caller: call.caller.accountId,
      signal: mayAbort(body, token) ? call.signal : undefined,
    });
    return answer.rest === undefined
      ? await settledAnswer(run, answer)
      : streamedAnswer(run, answer, answer.rest);
  } catch (error) {
    await release(run, error);
    throw error;
  }
}

/** What changes the chain, and what a retry will ask for by its key, ends although the caller left. */
function mayAbort(body: RpcAdmission, token: IdempotencyToken | undefined): boolean {
  return token === undefined && !body.calls.some((call) => call.method.retry.startsWith('write'));
}

function chargeRequest(parts: ProxyRpcParts, call: ProxyRpcCall, body: RpcAdmission) {
  const maxNano = parts.rpc.cost(body.creditsMax);
  return {
    requestId: call.requestId,
    caller: call.caller,
    kind: USAGE_KIND,
    modelId: call.network,
    tier: call.caller.plan,
    rate: NO_RATE,
    tokensEstimate: 0,
    // The balance must cover the full tiers before anything is forwarded.
    minNano: maxNano,
    maxNano,
    priceVersion: parts.rpc.priceVersion,
  };
}

/** Everything due is on disk before the answer leaves. */
async function settledAnswer(run: Run, answer: RpcAnswer): Promise<ProxyRpcAnswer> {
  const status = answer.kind === 'abandoned' ? 'aborted' : 'completed';
  const [remainingNano] = await Promise.all([
    settle(run, answer.credits, answer.retries, status),
    answer.kind === 'answered' ? keep(run, answer, [answer.body]) : giveKeyBack(run),
  ]);
  return answered(run, answer, undefined, remainingNano);
}

/** A long answer settles when its last bytes are here, and leaves after that. */
function streamedAnswer(run: Run, answer: RpcAnswer, rest: Readable): ProxyRpcAnswer {
  const copy = new BodyCopy(run.token === undefined ? 0 : MAX_STORED_BYTES);
  copy.add(answer.body);
  let isSettled = false;
  const held = holdLastBytes(
    rest,
    async () => {
      isSettled = true;
      await Promise.all([
        settle(run, answer.credits, answer.retries, 'completed'),
        keep(run, answer, copy.chunks),
      ]);
    },
    (chunk) => copy.add(chunk),
  );
  finished(held, (error) => {
    if (!isSettled) void endBrokenStream(run, answer, error);
  });
  return answered(run, answer, held, run.admission.hold.before.usdNano);
}

/** A stream that ended early: the node's fault is free, the work of a node for a caller who left is due. */
async function endBrokenStream(
  run: Run,
  answer: RpcAnswer,
  error: NodeJS.ErrnoException | null | undefined,
): Promise<void> {
  // Destroyed without a cause of its own: nobody but the caller ends a stream that way.
  const hasLeft = run.call.signal.aborted || error?.code === 'ERR_STREAM_PREMATURE_CLOSE';
  if (!hasLeft) return release(run, error);
  try {
    await Promise.all([settle(run, answer.credits, answer.retries, 'aborted'), giveKeyBack(run)]);
  } catch (failure) {
    // Nobody waits for it any more; the hold ends with the epoch of this process.
    logFailure(run, failure);
  }
}

async function settle(
  run: Run,
  credits: number,
  retries: number,
  status: 'completed' | 'aborted',
): Promise<Nano> {
  const { parts, body, reservation, admission } = run;
  const [settlement] = await Promise.all([
    parts.charge.settle(admission, {
      costNano: parts.rpc.cost(credits),
      status,
      attempts: retries + 1,
      extras: { credits, items: body.calls.length },
    }),
    parts.creditCap.correct(reservation, credits),
  ]);
  return settlement.after.usdNano;
}

/** Stores an answer that reached a node; without chunks that it was too large for that. */
async function keep(
  run: Run,
  answer: RpcAnswer,
  chunks: readonly Buffer[] | undefined,
): Promise<void> {
  const { token, parts, call } = run;
  if (token === undefined) return;
  const [only] = chunks ?? [];
  await parts.idempotency.complete(token, {
    status: 200,
    headers: {
      credits: String(answer.credits),
      cost: formatRpcCost(parts.rpc.cost(answer.credits)),
      requestId: call.requestId,
    },
    body: only !== undefined && chunks?.length === 1 ? only : chunks && Buffer.concat(chunks),
  });
}

/** The next request with the key runs. */
async function giveKeyBack({ token, parts }: Run): Promise<void> {
  if (token !== undefined) await parts.idempotency.abandon(token);
}

async function release(run: Run, error: unknown): Promise<void> {
  const { parts, token, reservation, admission } = run;
  const ends = await Promise.allSettled([
    parts.charge.release(admission, { status: 'failed' }),
    parts.creditCap.correct(reservation, 0),
    token === undefined ? undefined : parts.idempotency.abandon(token),
  ]);
  // Holds and leases of this process run out by themselves; the first error is the caller's.
  for (const end of ends) if (end.status === 'rejected') logFailure(run, end.reason, error);
}

function logFailure(run: Run, failure: unknown, after?: unknown): void {
  run.parts.log.error(
    {
      requestId: run.call.requestId,
      network: run.call.network,
      reason: reasonOf(failure),
      ...(after === undefined ? {} : { after: reasonOf(after) }),
    },
    'An RPC charge could not be ended',
  );
}

function answered(
  run: Run,
  answer: RpcAnswer,
  rest: Readable | undefined,
  remainingNano: Nano,
): ProxyRpcAnswer {
  return {
    body: answer.body,
    rest,
    credits: answer.credits,
    costUsd: formatRpcCost(run.parts.rpc.cost(answer.credits)),
    requestId: run.call.requestId,
    isReplayed: false,
    retries: answer.retries,
    charged: { admission: run.admission, remainingNano },
  };
}

function replayed(stored: StoredAnswer): ProxyRpcAnswer {
  return {
    body: stored.body,
    rest: undefined,
    credits: Number(stored.headers['credits']),
    costUsd: stored.headers['cost'] ?? '',
    requestId: stored.headers['requestId'] ?? '',
    isReplayed: true,
    retries: 0,
    charged: undefined,
  };
}

/** Limits: requests a minute and caller; a batch is one request, a replay is one too. */
async function countRequest(parts: ProxyRpcParts, call: ProxyRpcCall): Promise<void> {
  const { caller } = call;
  const limits = parts.limits();
  const own = caller.keyLimits.rpcRequestsPerMinute;
  const ofPlan = caller.plan === 'staff' ? limits.staffRequestsPerMinute : limits.requestsPerMinute;
  const who = own === undefined ? caller.accountId : caller.keyId;
  const taken = await parts.windows.take(
    {
      bucket: `${who}|crypto-rpc`,
      tokens: 0,
      requestLimit: own ?? caller.accountLimits.rpcRequestsPerMinute ?? ofPlan,
      tokenLimit: 0,
    },
    parts.clock.nowMs(),
  );
  if (taken.ok) return;
  logLimit(parts, call, 'RPM');
  throw requestLimitFault(taken.state);
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

async function reserveCredits(
  parts: ProxyRpcParts,
  call: ProxyRpcCall,
  body: RpcAdmission,
): Promise<CreditReservation> {
  const { caller } = call;
  // A key has no window of its own: its cap is a part of the account's.
  const cap =
    caller.keyLimits.rpcCreditsPerDay ??
    caller.accountLimits.rpcCreditsPerDay ??
    parts.limits().creditsPerDay;
  const outcome = await parts.creditCap.reserve(caller.accountId, body.creditsMax, cap);
  if (outcome.ok) return outcome.reservation;
  logLimit(parts, call, 'RPD');
  throw new Fault('RATE_LIMIT_EXCEEDED', {
    message: 'The limit of RPC credits is reached',
    fields: {
      customMessage: `The cap of ${cap} RPC credits per rolling 24 hours leaves no room for the ${body.creditsMax} credits of this request: ${outcome.usedCredits} are used`,
    },
  });
}

function logLimit(parts: ProxyRpcParts, call: ProxyRpcCall, type: 'RPM' | 'RPD'): void {
  const { accountId, keyId, plan } = call.caller;
  parts.limitLog.add({ accountId, keyId, modelId: `crypto-rpc ${call.network}`, tier: plan, type });
}

/** Keeps the chunks of an answer up to a size; beyond it, none. */
class BodyCopy {
  readonly #limitBytes: number;
  #sizeBytes = 0;
  #chunks: Buffer[] | undefined = [];

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  /** Everything added, or undefined when it was too much. */
  get chunks(): readonly Buffer[] | undefined {
    return this.#chunks;
  }

  add(chunk: Buffer): void {
    this.#sizeBytes += chunk.length;
    if (this.#sizeBytes > this.#limitBytes) this.#chunks = undefined;
    this.#chunks?.push(chunk);
  }
}
