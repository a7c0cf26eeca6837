/**
 * `GET /events`: changes of an account as server-sent events: its balance, today's sums, settled
 * requests and steps of payments.
 *
 * The accounts with an open stream are read from the database every second, so that the process
 * that does the work does not matter. Streams are bounded by account, address, process, time and
 * unread bytes.
 */
import { z } from 'zod';
import { type UsageRow, receiptsOf, usageGroups } from '../billing/ledger/ledger.ts';
import { HOUR_MS, SECOND_MS, dayOf } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { type RouteDescription, eventContent } from '../http/describe.ts';
import type { RequestContext } from '../http/request-context.ts';
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

const LOOK_EVERY_MS = SECOND_MS;
const HEARTBEAT_EVERY_MS = 15 * SECOND_MS;
/**
 * After this a client connects again, so that no stream outlives what it was opened with by long.
 */
const MAX_LIFE_MS = HOUR_MS;
const MAX_OF_ACCOUNT = 10;
/** Wallets cost nothing: whoever makes many of them leaves most of the process to others. */
const MAX_OF_ADDRESS = 100;
const MAX_OF_PROCESS = 1_000;
/** Requests of one look that are told one by one; beyond them only the sums move. */
const MAX_REQUESTS = 100;
/** Requests, and payments, that a watch remembers having told. */
const MAX_TOLD = 2_000;
const MAX_TOP_UPS = 20;
const RETRY_MS = 3_000;

const Today = z.object({ date: Day, ...Sums });
const End = z.object({
  reason: z
    .enum(['session', 'shutdown', 'time'])
    .describe('session: what opened the stream has ended; otherwise connect again.'),
});

const EVENTS: RouteDescription = {
  tag: 'Usage and billing',
  summary: 'Live events',
  about:
    'Server-sent events of the account: `balance` and `usage` (the sums of today) first and whenever they change, `request` for each request that is settled, `top_up` for each step of a payment of its wallet, and `end`. A wallet and an ADMIN key hear the account, another key itself and the balance. At most 10 streams an account and 100 an address; one lasts an hour at most.',
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
  /** The server takes no new work: streams end, so that it can. */
  readonly isClosing: () => boolean;
  readonly log: Log;
}

export function eventRoutes(parts: EventParts): Route[] {
  const live = new LiveEvents(parts);
  return [get('/events', 'key-or-wallet', EVENTS, (context) => live.open(context))];
}

type EndReason = z.infer<typeof End>['reason'];

/** One open answer. */
interface Stream {
  readonly caller: Caller;
  readonly writer: StreamWriter;
  readonly address: string;
  readonly openedMs: number;
  beatMs: number;
  isFull: boolean;
  readonly end: (reason?: EndReason) => void;
}

/** What several streams of one account and key hear, and what they have heard. */
interface Watch {
  readonly accountId: string;
  readonly keyId: string | undefined;
  readonly streams: Set<Stream>;
  balance: string;
  usage: string;
  /** Requests of yesterday and today, by which new ones are noticed. */
  requests: bigint;
  readonly told: Set<string>;
  readonly topUps: Map<string, string>;
  topUpsSinceMs: number;
  /** The first look only learns what there is. */
  hasLooked: boolean;
}

class LiveEvents {
  readonly #parts: EventParts;
  readonly #watches = new Map<string, Watch>();
  /** Streams of each address that has one. */
  readonly #addresses = new Map<string, number>();
  #open = 0;
  #stop: (() => void) | undefined;
  #looking = false;

  constructor(parts: EventParts) {
    this.#parts = parts;
  }

  /** Resolves when the stream has ended. */
  async open(context: RequestContext): Promise<void> {
    const { caller, countedAddress: address } = context;
    this.#requireCapacity(caller.accountId, address);
    // A stream is no work that runs: it counts against its own bound only.
    context.leave?.();
    context.leave = undefined;
    context.set('cache-control', 'no-cache, no-store');
    context.set('x-accel-buffering', 'no');
    const writer = context.stream(200, 'text/event-stream; charset=utf-8');
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
          if (reason !== undefined) writer.end(eventOf('end', { reason }));
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
        if (text !== '') write(stream, Buffer.from(`event: ${name}\ndata: ${text}\n\n`));
      }
      this.#stop ??= this.#parts.clock.every(LOOK_EVERY_MS, () => void this.#lookAtAll());
      if (!watch.hasLooked) void this.#lookAt(watch);
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
        `The account has ${ofAccount} event streams open and may have ${MAX_OF_ACCOUNT}; close one first`,
      );
    }
    if ((this.#addresses.get(address) ?? 0) >= MAX_OF_ADDRESS) {
      refuse(`An address may have ${MAX_OF_ADDRESS} event streams open; close one first`);
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
        told: new Set(),
        topUps: new Map(),
        topUpsSinceMs: this.#parts.clock.nowMs(),
        hasLooked: false,
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

  async #lookAtAll(): Promise<void> {
    const { isClosing, clock } = this.#parts;
    const nowMs = clock.monotonicMs();
    for (const watch of this.#watches.values()) {
      for (const stream of watch.streams) {
        if (isClosing()) stream.end('shutdown');
        else if (nowMs - stream.openedMs >= MAX_LIFE_MS) stream.end('time');
      }
    }
    // A database that is slow is not asked the more for it.
    if (this.#looking) return;
    this.#looking = true;
    try {
      for (const watch of this.#watches.values()) await this.#lookAt(watch);
    } finally {
      this.#looking = false;
    }
  }

  async #lookAt(watch: Watch): Promise<void> {
    try {
      await this.#tellBalance(watch);
      await this.#tellUsage(watch);
      await this.#tellTopUps(watch);
      watch.hasLooked = true;
      for (const stream of watch.streams) await this.#beat(stream);
    } catch (error) {
      // The database is away: what changed meanwhile is told when it is back.
      this.#parts.log.debug({ reason: reasonOf(error) }, 'Events cannot be looked for');
    }
  }

  async #tellBalance(watch: Watch): Promise<void> {
    const text = JSON.stringify(await balanceBody(this.#parts, watch.accountId));
    if (text === watch.balance) return;
    watch.balance = text;
    tell(watch, 'balance', text);
  }

  async #tellUsage(watch: Watch): Promise<void> {
    const { stores, clock } = this.#parts;
    const { accountId, keyId } = watch;
    const today = dayOf(clock.nowMs());
    const filter = { accountId, keyId, fromDay: today - 1, toDay: today };
    const days = await usageGroups(stores.store, filter, ['day'], 2);
    const requests = days.reduce((sum, day) => sum + day.requests, 0n);
    const sums = days.find(({ day }) => Number(day) === today) ?? NOTHING;
    const text = JSON.stringify({ date: dayText(today), ...sumsOf(sums) });
    // The day before falls out of the sum at midnight: any difference is looked at.
    if (requests !== watch.requests || !watch.hasLooked) {
      watch.requests = requests;
      const { rows } = await receiptsOf(stores.store, filter, { limit: MAX_REQUESTS });
      tellRequests(watch, rows);
    }
    if (text === watch.usage) return;
    watch.usage = text;
    tell(watch, 'usage', text);
  }

  async #tellTopUps(watch: Watch): Promise<void> {
    const wallet = walletOfAccount(watch.accountId);
    if (wallet === undefined || watch.keyId !== undefined) return;
    const { stores, clock } = this.#parts;
    const nowMs = clock.nowMs();
    // Clocks of other processes may be a little behind, and this one may have been set back.
    const changedSinceMs = Math.min(watch.topUpsSinceMs, nowMs) - HEARTBEAT_EVERY_MS;
    watch.topUpsSinceMs = nowMs;
    const filter = { wallet, changedSinceMs };
    const found = await listTopUps(stores.store, filter, { limit: MAX_TOP_UPS });
    for (const one of found.toReversed()) {
      const step = `${one.state} ${one.transaction ?? ''} ${one.failure ?? ''}`;
      if (watch.topUps.get(one.paymentId) === step) continue;
      watch.topUps.set(one.paymentId, step);
      if (watch.hasLooked) tell(watch, 'top_up', JSON.stringify(topUpItem(one)));
    }
    forgetOldest(watch.topUps);
  }

  /** Now and then: a sign of life, and whether what opened the stream still stands. */
  async #beat(stream: Stream): Promise<void> {
    const nowMs = this.#parts.clock.monotonicMs();
    if (nowMs - stream.beatMs < HEARTBEAT_EVERY_MS) return;
    stream.beatMs = nowMs;
    if (!(await stands(this.#parts, stream.caller))) return stream.end('session');
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

/** Oldest first; those that were there before the first look are known to who asks. */
function tellRequests(watch: Watch, rows: readonly UsageRow[]): void {
  for (const row of rows.toReversed()) {
    if (watch.told.has(row.request_id)) continue;
    watch.told.add(row.request_id);
    if (watch.hasLooked) tell(watch, 'request', JSON.stringify(receiptBody(row)));
  }
  forgetOldest(watch.told);
}

function forgetOldest(told: Set<string> | Map<string, string>): void {
  for (const id of told.keys()) {
    if (told.size <= MAX_TOLD) return;
    told.delete(id);
  }
}

function tell(watch: Watch, name: string, text: string): void {
  const event = Buffer.from(`event: ${name}\ndata: ${text}\n\n`);
  for (const stream of watch.streams) write(stream, event);
}

/** Who does not read what there is hears no more of it: the next change says how it is then. */
function write(stream: Stream, event: Buffer): void {
  if (stream.isFull) return;
  if (stream.writer.write(event)) return;
  stream.isFull = true;
  stream.writer.onDrain(() => {
    stream.isFull = false;
  });
}

function eventOf(name: string, data: unknown): Buffer {
  return Buffer.from(`event: ${name}\ndata: ${JSON.stringify(data)}\n\n`);
}

/** Whether the session or the key of a stream is still good for anything. */
async function stands({ stores, clock }: EventParts, caller: Caller): Promise<boolean> {
  const { identity } = stores;
  const { accountId, keyId, session } = caller;
  if (session !== undefined) {
    const open = await identity.sessions.list(accountId, session.keyId);
    if (!open.some(({ id }) => id === session.id)) return false;
  }
  if ((await identity.findAccount(accountId))?.disabled === true) return false;
  if (keyId === '') return true;
  const key = await identity.findKey(accountId, keyId);
  return key !== undefined && (key.expiresMs === undefined || key.expiresMs > clock.nowMs());
}
