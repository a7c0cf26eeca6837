/**
 * Conditions that hold in every run, whatever happens. An oracle reads the books of the server, and
 * compares them with the records of the callers and of the card processor.
 */
import { usdToNano } from '../../src/core/money.ts';
import type { App } from '../../src/server/server.ts';
import type { StripeDouble } from '../support/stripe-double.ts';
import { LIMIT_USD, REQUESTS_PER_MINUTE } from './callers.ts';
import { MONTHLY_USD } from './people.ts';
import { type FaultKind, faultType } from './plan.ts';
import { RESULT_NANO } from './rpc-callers.ts';
import type { CallerAccount, ChatSeen, Seen, Town } from './town.ts';
import { DefectFound, NEW_YEAR_MS } from './world.ts';

/** A unit of USDC, which has six decimals. */
const NANO_PER_UNIT = 1_000n;
const NANO_PER_CENT = 10_000_000n;
const MINUTE_MS = 60_000;
/** The servers notify each other of their counts in this time. */
const NOTIFIED_MS = 1_000;

interface UsageRow {
  readonly request_id: string;
  readonly account_id: string;
  readonly cost_nano: bigint;
  readonly metadata: string | null;
}

function demand(holds: boolean, sentence: string): void {
  if (!holds) throw new DefectFound(sentence);
}

/** Queries that never have a row. */
const ALWAYS = {
  'Below zero': `SELECT id, balance_nano, held_nano FROM ledger_account
     WHERE id NOT LIKE 'house:%' AND (balance_nano < 0 OR held_nano < 0)`,
  'Above a limit': `SELECT id, usd_spent_nano, usd_held_nano FROM ledger_allowance
     WHERE usd_spent_nano + usd_held_nano > usd_limit_nano`,
};

const MONTHS = {
  'Charged to cards in a month': `SELECT CAST(SUM(amount_nano) AS BIGINT) AS sum FROM payments_card
     WHERE kind = 'automatic' AND state = 'paid' GROUP BY account_id, created_ms < ${NEW_YEAR_MS}
     HAVING SUM(amount_nano) > ${usdToNano(MONTHLY_USD)}`,
};

/** Queries that have no row when nothing runs any more. */
const AT_THE_END = {
  'Payments did not end': `SELECT * FROM payments_topup WHERE state NOT IN ('credited', 'failed')`,
  'Refunds did not end': `SELECT * FROM payments_refund WHERE state NOT IN ('paid', 'failed')`,
  'Batches did not end': `SELECT * FROM batches_batch
     WHERE state NOT IN ('completed', 'failed', 'expired', 'cancelled')`,
  'Videos did not end': `SELECT * FROM video_job WHERE state NOT IN ('completed', 'failed')`,
};

async function haveNoRows(app: App, queries: Readonly<Record<string, string>>): Promise<void> {
  for (const [sentence, sql] of Object.entries(queries)) {
    const rows = await app.stores.store.query(sql);
    demand(rows.length === 0, `${sentence}: ${text(rows)}`);
  }
}

/** Holds at every moment. */
export async function booksAreRight(app: App, town: Town): Promise<void> {
  const report = await app.stores.ledger.audit();
  demand(report.ok, `The audit finds ${text(report.differences)}`);
  await haveNoRows(app, ALWAYS);
  for (const [way, { everReceived }] of chainsOf(town)) {
    const topUps = await app.stores.ledger.receivedFrom(`house:top-up:${way}`);
    const most = everReceived * NANO_PER_UNIT;
    demand(topUps <= most, `${topUps} credited to wallets, ${way} had at most ${most}`);
  }
}

/** Holds when nothing runs any more. Processes that share a database hold amounts that they lease. */
export async function runIsRight(app: App, town: Town, hasLeases = false): Promise<void> {
  await booksAreRight(app, town);
  const rows = await app.stores.store.query<UsageRow>(
    `SELECT u.request_id, u.account_id, u.metadata,
       u.usd_nano + u.diem_nano - COALESCE(r.amount_nano, 0) AS cost_nano FROM ledger_usage u
     LEFT JOIN (SELECT request_id, amount_nano FROM ledger_transfer WHERE kind = 'REFUND') r
       ON r.request_id = u.request_id`,
  );
  const charges = Map.groupBy(rows, (row) => row.request_id);
  for (const seen of town.seen) isChargedOnce(seen, charges.get(seen.requestId ?? '') ?? []);
  keysHaveOneEffect(rows, town.seen);
  callsHaveResponses(rows, town);
  capsHold(rows, town.accounts);
  await creditsArePosted(app, town);
  await cardsAreCredited(app, town.stripe);
  for (const [way, { received, refunded }] of chainsOf(town)) {
    const posted = await postedBy(app, way);
    const units = received - refunded;
    demand(posted === units * NANO_PER_UNIT, `${posted} from wallets, ${way} has ${units} units`);
  }
  await haveNoRows(app, AT_THE_END);
  await videosAreCharged(app, charges);
  nothingRuns(app);
  if (hasLeases) return;
  const { openHolds } = await app.stores.ledger.audit();
  demand(openHolds === 0, `${openHolds} holds did not end`);
  const still = 'SELECT id, held_nano FROM ledger_account WHERE held_nano <> 0';
  await haveNoRows(app, { 'Still held': still });
}

/** Holds for each server after its last request. */
export function nothingRuns({ server, stores }: App): void {
  demand(server.open === 0, `${server.open} requests did not end`);
  const { holds } = stores.ledger;
  const { count } = holds.figures();
  demand(count === 0, `${count} holds of requests did not end`);
  demand(holds.journaled === 0, `${holds.journaled} settles stay in the journal`);
}

/** A response that arrived whole is charged once, with the price of what it contains. */
function isChargedOnce(seen: Seen, rows: readonly UsageRow[]): void {
  const { requestId, status, expectedNano } = seen;
  if (requestId === undefined || status === undefined) return;
  const sum = costOf(rows);
  const name = `${requestId} of ${seen.caller} (${status})`;
  demand(rows.length <= 1, `${name} has ${rows.length} receipts`);
  demand(!seen.isInternal, `${name} failed without a reason`);
  if (status !== 200) return demand(sum === 0n, `${name} failed and costs ${sum}`);
  // Without usage a stream has ended with an error, and is charged for its text or not at all.
  if (expectedNano === undefined) return;
  // The text of a broken stream is not charged if another request has taken over the key.
  if (seen.isBroken && seen.key !== undefined && rows.length === 0) return;
  demand(rows.length === 1, `${name} has no receipt`);
  // Another server may have ended the hold of a broken stream, and its caller spent the credit.
  if (seen.isBroken && sum < expectedNano) return;
  demand(sum === expectedNano, `${name} costs ${sum}, not ${expectedNano}`);
}

/** Each finished video has cost its quote, each other one nothing. */
async function videosAreCharged(
  app: App,
  charges: ReadonlyMap<string, readonly UsageRow[]>,
): Promise<void> {
  const jobs = await app.stores.store.query<{ id: string; state: string; quote_nano: bigint }>(
    'SELECT id, state, quote_nano FROM video_job',
  );
  for (const { id, state, quote_nano: quote } of jobs) {
    const cost = costOf(charges.get(id) ?? []);
    const expected = state === 'completed' ? quote : 0n;
    demand(cost === expected, `The video ${id} is ${state} and costs ${cost} of ${quote}`);
  }
}

function keysHaveOneEffect(rows: readonly UsageRow[], seen: readonly Seen[]): void {
  const charged = rows.filter((row) => row.cost_nano > 0n);
  for (const [key, some] of Map.groupBy(charged, (row) => tagsOf(row).key)) {
    demand(
      key === undefined || some.length === 1,
      `The key ${key} is charged ${some.length} times`,
    );
  }
  const served = seen.filter(({ status, isBroken }) => status === 200 && !isBroken);
  for (const [key, some] of Map.groupBy(served, (one) => one.key)) {
    const { size } = new Set(some.map((one) => one.requestId));
    demand(key === undefined || size === 1, `The key ${key} has ${size} responses`);
  }
}

function costOf(rows: readonly UsageRow[]): bigint {
  return rows.reduce((total, row) => total + row.cost_nano, 0n);
}

function tagsOf({ metadata }: UsageRow): { readonly key?: string; readonly rpc?: string } {
  return JSON.parse(metadata ?? '{}') as object; // written by the callers
}

/** A JSON-RPC call costs nothing unless a node has sent all of its response. */
function callsHaveResponses(rows: readonly UsageRow[], { nodes, nodeCalls }: Town): void {
  for (const row of rows) {
    const calls = nodeCalls.get(tagsOf(row).rpc ?? '');
    if (calls === undefined) continue;
    const hasResponse = (one: unknown): boolean =>
      typeof one !== 'string' || nodes.some((node) => node.hasSent(one));
    const most = RESULT_NANO * BigInt(calls.filter(hasResponse).length);
    const { request_id: id, cost_nano: cost } = row;
    demand(cost <= most, `${id} costs ${cost}, and the nodes have sent responses for ${most}`);
  }
}

function capsHold(rows: readonly UsageRow[], accounts: readonly CallerAccount[]): void {
  const cap = usdToNano(LIMIT_USD.capped);
  for (const { accountId, name } of accounts.filter(({ kind }) => kind === 'capped')) {
    const spent = costOf(rows.filter((row) => row.account_id === accountId));
    demand(spent <= cap, `${name} spent ${spent} of a limit of ${cap}`);
  }
}

async function creditsArePosted(app: App, { credited }: Town): Promise<void> {
  for (const [reference, { accountId, amountNano }] of credited) {
    const rows = await app.stores.store.query<{ amount_nano: bigint }>(
      `SELECT amount_nano FROM ledger_transfer WHERE credit_account = $1 AND id LIKE $2`,
      [accountId, `credit-${reference}%`],
    );
    const amounts = rows.map((row) => row.amount_nano);
    const isRight = amounts.length === 1 && amounts[0] === amountNano;
    demand(isRight, `The credit ${reference} of ${amountNano} is posted as ${text(amounts)}`);
  }
}

/** Each payment is worth what the card processor has kept of it. */
async function cardsAreCredited(app: App, stripe: StripeDouble): Promise<void> {
  const rows = await app.stores.store.query<{ id: string; nano: bigint; state: string }>(
    'SELECT id, credited_nano - refunded_nano AS nano, state FROM payments_card',
  );
  const kept = stripe.kept();
  const sum = [...kept.values()].reduce((total, one) => total + one, 0);
  for (const { id, nano, state } of rows) {
    const cents = kept.get(id) ?? 0;
    demand(
      nano === BigInt(cents) * NANO_PER_CENT,
      `${id} (${state}) has ${nano}, paid ${cents} cents`,
    );
    kept.delete(id);
  }
  demand(kept.size === 0, `Payments without a row: ${text([...kept])}`);
  await haveNoRows(app, MONTHS);
  const posted = await postedBy(app, 'stripe');
  demand(posted === BigInt(sum) * NANO_PER_CENT, `${posted} from cards, paid ${sum} cents`);
}

/**
 * In each minute, a key is served no more requests than its limit to a model, none is rejected before the limit is
 * used, and no server shows more requests as left than there are.
 */
export function minutesHold({ accounts, beginsMs, plan, chats }: Town): void {
  const before = (ends: (kind: FaultKind) => boolean) => {
    const untilMs = beginsMs + (plan.faults.find(({ kind }) => ends(kind))?.atMs ?? Infinity);
    return ({ seenMs }: ChatSeen): boolean => seenMs < untilMs;
  };
  const isCounted = before((kind) => {
    // A server without a database of its own begins its counts again when it starts.
    const beginsAgain = faultType(kind).isDown || kind === 'full disk';
    return kind === 'clock' || (plan.processes === 1 && beginsAgain);
  });
  const isQuiet = before((kind) => faultType(kind).of !== 'peer');
  const limited = new Set(
    accounts.filter(({ kind }) => kind === 'limited').map(({ name }) => name),
  );
  const whole = chats.filter(
    (one) =>
      limited.has(one.caller) && isCounted(one) && minuteOf(one.sentMs) === minuteOf(one.seenMs),
  );
  const minutes = Map.groupBy(
    whole,
    ({ caller, model, seenMs }) => `${caller} to ${model} in minute ${minuteOf(seenMs)}`,
  );
  for (const [name, minute] of minutes) {
    const served = minute.filter(({ status }) => status === 200);
    demand(served.length <= REQUESTS_PER_MINUTE, `${served.length} requests of ${name}`);
    for (const one of minute.filter(isQuiet)) {
      const earlier = served.filter(({ seenMs }) => seenMs < one.sentMs - NOTIFIED_MS);
      const left = REQUESTS_PER_MINUTE - earlier.length;
      const { requestsLeft: shown, requestId } = one;
      if (shown === undefined) continue;
      demand(shown <= left, `${requestId} of ${name} shows ${shown}, ${left} are left`);
      if (isRejected(one)) isRejectedRightly(name, one, chats);
    }
  }
}

/** With requests left, a model server has rejected it. */
function isRejected({ status, requestsLeft }: ChatSeen): boolean {
  return status === 429 && requestsLeft === 0;
}

/** The limit is used up, by this request at the latest: a model server may have rejected that. */
function isRejectedRightly(name: string, one: ChatSeen, chats: readonly ChatSeen[]): void {
  const count = chats.filter(
    (other) =>
      other.caller === one.caller &&
      other.model === one.model &&
      (other === one || !isRejected(other)) &&
      other.sentMs <= one.seenMs &&
      minuteOf(other.seenMs) >= minuteOf(one.sentMs),
  ).length;
  const { requestId } = one;
  demand(count >= REQUESTS_PER_MINUTE, `${requestId} of ${name} is rejected after ${count}`);
}

function minuteOf(ms: number): number {
  return Math.floor(ms / MINUTE_MS);
}

function chainsOf({ chain, solana }: Town) {
  return [
    ['base', chain],
    ['solana', solana],
  ] as const;
}

/** Sum that accounts have received by a way of payment, without returned payments. */
async function postedBy(
  { stores: { ledger } }: App,
  way: 'base' | 'solana' | 'stripe',
): Promise<bigint> {
  const paid = await ledger.receivedFrom(`house:top-up:${way}`);
  return paid + (await ledger.receivedFrom(`house:payout:${way}`));
}

function text(value: unknown): string {
  return JSON.stringify(value, (_name, one: unknown) =>
    typeof one === 'bigint' ? String(one) : one,
  );
}
