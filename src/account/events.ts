/**
 * `GET /events`: changes of an account as server-sent events: its balance, today's sums, settled
 * requests and steps of payments.
 *
 * The accounts with an open stream are read from the database every second, because any process may have
 * changed them. Streams are limited by account, address, process, time and unread bytes.
 */
import * as z from 'zod';
import { type UsageRow, receiptsOf, usageGroups } from '../billing/ledger/ledger.ts';
import { HOUR_MS, SECOND_MS, dayOf } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { type RouteDescription, eventContent } from '../http/describe.ts';
import type { RequestContext } from '../http/request-context.ts';
import { EVENT_STREAM } from '../http/response-stream.ts';
import { type Route, get } from '../http/route.ts';
import type { StreamWriter } from '../http/stream-writer.ts';
import { type Caller, walletOfAccount } from '../identity/identity.ts';
import { listTopUps } from '../payments/payments.ts';
import type { AccountParts } from './account-parts.ts';
import { BalanceResponse, balanceBody } from './billing.ts';
import { receiptBody } from './receipts.ts';
import { TopUpItem, topUpItem } from './statement.ts';
import { dayText, sumsOf, visibleKey } from './usage-query.ts';
import { Day, Receipt, Sums } from './usage-schema.ts';

const POLL_EVERY_MS = SECOND_MS;
const HEARTBEAT_EVERY_MS = 15 * SECOND_MS;
/** The client connects again after this time. */
const MAX_LIFE_MS = HOUR_MS;
const MAX_OF_ACCOUNT = 10;
/** Wallets are free, so a caller can have many accounts. */
const MAX_OF_ADDRESS = 100;
const MAX_OF_PROCESS = 1_000;
/** Requests of one poll that are sent as events; further ones are in the sums only. */
const MAX_REQUESTS = 100;
/** Ids of sent requests, and of sent payments, that a watch stores. */
const MAX_SENT = 2_000;
const MAX_TOP_UPS = 20;
const RETRY_MS = 3_000;

const Today = z.object({ date: Day, ...Sums });
const End = z.object({
  reason: z
    .enum(['session', 'shutdown', 'time'])
    .describe('session: the session or key of the stream has ended; otherwise connect again.'),
});

const EVENTS: RouteDescription = {
  tag: 'Usage and billing',
  summary: 'Live events',
  about:
    'Server-sent events of the account: `balance` and `usage` (the sums of today) at the start and after each change, `request` for each settled request, `top_up` for each step of a payment of its wallet, and `end`. A wallet and an ADMIN key receive the events of the account; another key receives its own events and the balance. At most 10 streams per account and 100 per address; a stream ends after an hour.',
  response: {
    status: 200,
    about: 'A stream; a comment every 15 seconds keeps it open.',
    headers: ['stream'],
    content: [
      eventContent(
        z.union([BalanceResponse, Today, Receipt, TopUpItem, End]),
        'event: usage\ndata: {"date":"2026-11-21","requests":12,"errors":0,"promptTokens":3400,"completionTokens":900,"cost":{"usd":0.0021,"diem":0}}\n\n',
      ),
    ],
  },
};

export interface EventParts extends AccountParts {
  /** Whether the server shuts down, which ends all streams. */
  readonly isClosing: () => boolean;
  readonly log: Log;
}

export function eventRoutes(parts: EventParts): Route[] {
  const live = new LiveEvents(parts);
  return [get('/events', 'key-or-wallet', EVENTS, (context) => live.open(context))];
}

type EndReason = z.infer<typeof End>['reason'];

interface Stream {
  readonly caller: Caller;
  readonly writer: StreamWriter;
  readonly address: string;
  readonly openedMs: number;
  beatMs: number;
  isFull: boolean;
  readonly end: (reason?: EndReason) => void;
}

/** The streams of one account and key, and the state that they have received. */
interface Watch {
  readonly accountId: string;
  readonly keyId: string | undefined;
  readonly streams: Set<Stream>;
  balance: string;
  usage: string;
  /** Number of requests of yesterday and today. */
  requests: bigint;
  readonly sentRequests: Set<string>;
  readonly topUps: Map<string, string>;
  topUpsSinceMs: number;
  /** The first poll reads the state and sends no requests and payments. */
  hasPolled: boolean;
}

class LiveEvents {
  readonly #parts: EventParts;
  readonly #watches = new Map<string, Watch>();
  /** Number of streams of each address. */
  readonly #addresses = new Map<string, number>();
  #open = 0;
  #stop: (() => void) | undefined;
  #isPolling = false;

  constructor(parts: EventParts) {
    this.#parts = parts;
  }

  /** Resolves when the stream has ended. */
  async open(context: RequestContext): Promise<void> {
    const { caller, countedAddress: address } = context;
    this.#requireCapacity(caller.accountId, address);
    // Streams have their own limits and do not count as running requests.
    context.leave?.();
    context.leave = undefined;
    context.set('cache-control', 'no-cache, no-store');
    context.set('x-accel-buffering', 'no');
    const { method } = context.request;
    if (method === 'HEAD') return void context.pipe(200, EVENT_STREAM).end();
    const writer = context.stream(200, EVENT_STREAM);
    const nowMs = this.#parts.clock.monotonicMs();
    const watch = this.#watchOf(caller);
    await new Promise<void>((resolve) => {
      const stream: Stream = {
        caller,
        writer,
        address,
        openedMs: nowMs,
        beatMs: nowMs,
        isFull: false,
        end: (reason) => {
          if (!watch.streams.delete(stream)) return;
          this.#left(watch, stream);
          if (reason !== undefined) writer.end(eventOf('end', JSON.stringify({ reason })));
          resolve();
        },
      };
      watch.streams.add(stream);
      this.#open += 1;
      this.#addresses.set(address, (this.#addresses.get(address) ?? 0) + 1);
      context.signal.addEventListener('abort', () => stream.end(), { once: true });
      if (context.isGone) return stream.end();
      writer.write(Buffer.from(`retry: ${RETRY_MS}\n\n`));
      for (const [name, text] of [
        ['balance', watch.balance],
        ['usage', watch.usage],
      ] as const) {
        if (text !== '') write(stream, eventOf(name, text));
      }
      this.#stop ??= this.#parts.clock.every(POLL_EVERY_MS, () => void this.#pollAll());
      if (!watch.hasPolled) void this.#poll(watch);
    });
  }

  #requireCapacity(accountId: string, address: string): void {
    let ofAccount = 0;
    for (const watch of this.#watches.values()) {
      if (watch.accountId === accountId) ofAccount += watch.streams.size;
    }
    const refuse = (message: string): never => {
      throw new Fault('RATE_LIMIT_EXCEEDED', {
        message,
        retryAfterSeconds: HEARTBEAT_EVERY_MS / SECOND_MS,
      });
    };
    if (ofAccount >= MAX_OF_ACCOUNT) {
      refuse(
        `The account has ${ofAccount} open event streams and may have ${MAX_OF_ACCOUNT}; close one first`,
      );
    }
    if ((this.#addresses.get(address) ?? 0) >= MAX_OF_ADDRESS) {
      refuse(`An address may have ${MAX_OF_ADDRESS} open event streams; close one first`);
    }
    if (this.#open >= MAX_OF_PROCESS) {
      refuse('Too many event streams are open on this server; try again later');
    }
  }

  #watchOf(caller: Caller): Watch {
    const { accountId } = caller;
    const keyId = visibleKey(caller, undefined);
    const name = `${accountId} ${keyId ?? '*'}`;
    let watch = this.#watches.get(name);
    if (watch === undefined) {
      watch = {
        accountId,
        keyId,
        streams: new Set(),
        balance: '',
        usage: '',
        requests: 0n,
        sentRequests: new Set(),
        topUps: new Map(),
        topUpsSinceMs: this.#parts.clock.nowMs(),
        hasPolled: false,
      };
      this.#watches.set(name, watch);
    }
    return watch;
  }

  #left(watch: Watch, { address }: Stream): void {
    this.#open -= 1;
    const ofAddress = (this.#addresses.get(address) ?? 0) - 1;
    if (ofAddress > 0) this.#addresses.set(address, ofAddress);
    else this.#addresses.delete(address);
    if (watch.streams.size === 0) {
      this.#watches.delete(`${watch.accountId} ${watch.keyId ?? '*'}`);
    }
    if (this.#open > 0) return;
    this.#stop?.();
    this.#stop = undefined;
  }

  async #pollAll(): Promise<void> {
    const { isClosing, clock } = this.#parts;
    const nowMs = clock.monotonicMs();
    for (const watch of this.#watches.values()) {
      for (const stream of watch.streams) {
        if (isClosing()) stream.end('shutdown');
        else if (nowMs - stream.openedMs >= MAX_LIFE_MS) stream.end('time');
      }
    }
    // A slow database gets one poll at a time.
    if (this.#isPolling) return;
    this.#isPolling = true;
    try {
      for (const watch of this.#watches.values()) await this.#poll(watch);
    } finally {
      this.#isPolling = false;
    }
  }

  async #poll(watch: Watch): Promise<void> {
    try {
      await this.#sendBalance(watch);
      await this.#sendUsage(watch);
      await this.#sendTopUps(watch);
      watch.hasPolled = true;
      for (const stream of watch.streams) await this.#beat(stream);
    } catch (error) {
      // The next poll sends the changes.
      this.#parts.log.debug({ reason: reasonOf(error) }, 'The changes of an account were not read');
    }
  }

  async #sendBalance(watch: Watch): Promise<void> {
    const text = JSON.stringify(await balanceBody(this.#parts, watch.accountId));
    if (text === watch.balance) return;
    watch.balance = text;
    send(watch, 'balance', text);
  }

  async #sendUsage(watch: Watch): Promise<void> {
    const { stores, clock } = this.#parts;
    const { accountId, keyId } = watch;
    const today = dayOf(clock.nowMs());
    const filter = { accountId, keyId, fromDay: today - 1, toDay: today };
    const days = await usageGroups(stores.store, filter, ['day'], 2);
    const requests = days.reduce((sum, day) => sum + day.requests, 0n);
    const sums = days.find(({ day }) => Number(day) === today) ?? NOTHING;
    const text = JSON.stringify({ date: dayText(today), ...sumsOf(sums) });
    // At midnight the sum gets smaller, so any difference counts.
    if (requests !== watch.requests || !watch.hasPolled) {
      watch.requests = requests;
      const { rows } = await receiptsOf(stores.store, filter, { limit: MAX_REQUESTS });
      sendRequests(watch, rows);
    }
    if (text === watch.usage) return;
    watch.usage = text;
    send(watch, 'usage', text);
  }

  async #sendTopUps(watch: Watch): Promise<void> {
    const wallet = walletOfAccount(watch.accountId);
    if (wallet === undefined || watch.keyId !== undefined) return;
    const { stores, clock } = this.#parts;
    const nowMs = clock.nowMs();
    // Clocks of other processes may be behind, and this clock may have been set back.
    const changedSinceMs = Math.min(watch.topUpsSinceMs, nowMs) - HEARTBEAT_EVERY_MS;
    watch.topUpsSinceMs = nowMs;
    const filter = { wallet, changedSinceMs };
    const found = await listTopUps(stores.store, filter, { limit: MAX_TOP_UPS });
    for (const one of found.toReversed()) {
      const step = `${one.state} ${one.transaction ?? ''} ${one.failure ?? ''}`;
      if (watch.topUps.get(one.paymentId) === step) continue;
      watch.topUps.set(one.paymentId, step);
      if (watch.hasPolled) send(watch, 'top_up', JSON.stringify(topUpItem(one)));
    }
    dropOldest(watch.topUps);
  }

  /** Every 15 seconds sends a comment, or ends the stream if its session or key has ended. */
  async #beat(stream: Stream): Promise<void> {
    const nowMs = this.#parts.clock.monotonicMs();
    if (nowMs - stream.beatMs < HEARTBEAT_EVERY_MS) return;
    stream.beatMs = nowMs;
    if (!(await isValid(this.#parts, stream.caller))) return stream.end('session');
    write(stream, BEAT);
  }
}

const BEAT = Buffer.from(':\n\n');
const NOTHING = {
  requests: 0n,
  errors: 0n,
  prompt_tokens: 0n,
  completion_tokens: 0n,
  usd_nano: 0n,
  diem_nano: 0n,
};

function sendRequests(watch: Watch, rows: readonly UsageRow[]): void {
  for (const row of rows.toReversed()) {
    if (watch.sentRequests.has(row.request_id)) continue;
    watch.sentRequests.add(row.request_id);
    if (watch.hasPolled) send(watch, 'request', JSON.stringify(receiptBody(row)));
  }
  dropOldest(watch.sentRequests);
}

function dropOldest(sent: Set<string> | Map<string, string>): void {
  for (const id of sent.keys()) {
    if (sent.size <= MAX_SENT) return;
    sent.delete(id);
  }
}

function send(watch: Watch, name: string, text: string): void {
  const event = eventOf(name, text);
  for (const stream of watch.streams) write(stream, event);
}

/** Drops events while the client does not read; the next change contains the current state. */
function write(stream: Stream, event: Buffer): void {
  if (stream.isFull) return;
  if (stream.writer.write(event)) return;
  stream.isFull = true;
  stream.writer.onDrain(() => {
    stream.isFull = false;
  });
}

function eventOf(name: string, text: string): Buffer {
  return Buffer.from(`event: ${name}\ndata: ${text}\n\n`);
}

/** Whether the session, the key or the wallet token of a stream is still valid. */
async function isValid({ stores, clock }: EventParts, caller: Caller): Promise<boolean> {
  const { identity } = stores;
  const { accountId, keyId, session, member } = caller;
  if (session !== undefined) {
    const open = await identity.sessions.list(accountId, session.keyId);
    if (!open.some(({ id }) => id === session.id)) return false;
  }
  if ((await identity.findAccount(accountId))?.disabled === true) return false;
  // The session of a member ends with its membership.
  if (member !== undefined) return true;
  try {
    await caller.requireToken?.();
    if (keyId === '') return true;
    // With its parent keys, which can be revoked or expire before it.
    const { expiresMs } = await identity.keys.bounded(keyId);
    return expiresMs === undefined || expiresMs > clock.nowMs();
  } catch (error) {
    if (error instanceof Fault) return false;
    throw error;
  }
}
