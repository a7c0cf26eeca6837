/**
 * Bugs that can be planted in the product, to show that the simulation finds them. Each replaces
 * texts of one source file while it is loaded; nothing is written. A text that is no longer in its file
 * is an error, so that a bug is always really there.
 */
import { readFileSync } from 'node:fs';
import { registerHooks } from 'node:module';

/** A file below `src/`, and in turn a text that it has once and its replacement. */
type PlantedBug = readonly [file: string, ...texts: string[]];

const STORE = 'db/sqlite/sqlite-store.ts';
const HOLDS = 'billing/ledger/memory-holds.ts';
const SETTLE = 'billing/ledger/settle.ts';
const SALE = 'billing/sale.ts';
const PROXY_RPC = 'rpc/proxy-rpc.ts';
const KEYS = 'billing/idempotency/idempotency.ts';
const CARDS = 'payments/cards/card-table.ts';
const EVENTS = 'payments/cards/card-payments.ts';

const EXPIRED_KEY = 'WHERE idempotency_entry.expires_ms <= now_ms($6)\n';
const EVENT_LOOP = 'for await (const event of provider.events(sinceMs - EVENTS_OVERLAP_MS)) {';
const NO_EVENTS = 'for (const event of [] as { notice: undefined; createdMs: number }[]) {';

export const PLANTED: Readonly<Record<string, PlantedBug>> = {
  'a charge is confirmed before its flush': [
    STORE,
    'if (work.durable) this.#unflushed.push(work);\n        else work.done();',
    'work.done();',
  ],
  'a failed flush counts as done': [
    STORE,
    'work.failed(new CommitUncertain(failure.message, { cause: failure }));',
    'work.done();',
  ],
  'settles are not durable': [HOLDS, 'durable: true,', 'durable: false,'],
  'a settled request keeps its hold': [
    HOLDS,
    'this.release(settle.held);\n          settle',
    'settle',
  ],
  'a failed request keeps its hold': [
    SALE,
    "if (sale.state === 'held') await this.#releaseFailed(sale, failure);",
    '',
  ],
  'holds do not reserve credit': [
    HOLDS,
    '    account.usdNano += usdNano;\n',
    '',
    '    account.usdNano -= usdNano;\n',
    '',
  ],
  'holds do not count in the limit of a key': [
    HOLDS,
    '  counter.usdNano += hold.usdNano;\n',
    '',
    '  counter.usdNano -= usdNano;\n  counter.diemNano -= dailyNano;\n}\n\n/** Resets the counter, because',
    '}\n\n/** Resets the counter, because',
  ],
  'small charges are not posted': [
    SETTLE,
    'if (usdNano === 0n) continue;',
    'if (usdNano < 20_000n) continue;',
  ],
  'a charge is a hundredth too high': [
    SALE,
    'const cost = { costNano: outcome.costNano,',
    'const cost = { costNano: ((outcome.costNano * 101n) / 100n) as Nano,',
  ],
  'a finished idempotency key runs again': [
    KEYS,
    EXPIRED_KEY,
    `${EXPIRED_KEY} OR idempotency_entry.state = 'done'\n`,
  ],
  'the same idempotency key runs twice at once': [
    KEYS,
    'if (!this.#live.has(placeOf(wanted))) {',
    '{',
    EXPIRED_KEY,
    `${EXPIRED_KEY} OR idempotency_entry.state = 'running'\n`,
    "throw new Fault('REQUEST_IN_PROGRESS', { message: LOST });",
    'return;',
  ],
  'a repeated credit is posted again': [
    'billing/ledger/operator-moves.ts',
    'const id = `${direction}-${reference}`;',
    'const id = `${direction}-${reference}-${nowMs}`;',
  ],
  'a credit of the operator is not durable': [
    'billing/ledger/ledger.ts',
    'return this.debitIn(tx, { ...noted, to: house });\n      }),\n    );',
    'return this.debitIn(tx, { ...noted, to: house });\n      }),\n      { durable: false },\n    );',
  ],
  'a card payment is applied from old facts': [
    CARDS,
    'WHERE id = $1 AND version = $2 RETURNING id',
    'WHERE id = $1 AND version > $2 - 9 RETURNING id',
  ],
  'a returned card payment is not reversed': [
    CARDS,
    'larger(ZERO, nano(facts.paidNano - facts.returnedNano))',
    'larger(payment.creditedNano, nano(facts.paidNano - facts.returnedNano))',
  ],
  'lost webhooks are not looked for': [EVENTS, EVENT_LOOP, NO_EVENTS],
  'a card payment is not read again without a webhook': [
    EVENTS,
    "return state === 'open' || isFeeOpen ?",
    'return isFeeOpen ?',
    EVENT_LOOP,
    NO_EVENTS,
  ],
  'the row of a card payment is written after its page': [
    CARDS,
    '    });\n  }\n\n  async opened',
    '    }, { durable: false });\n  }\n\n  async opened',
  ],
  'a request does not end': [
    'http/http.ts',
    'if (!context.answered) context.destroy();\n      context.finish();',
    'if (context.answered) context.finish();',
  ],
  'leased requests of a minute do not count': [
    'billing/limits/window-grants.ts',
    '  counters.requests += leased.requests;\n',
    '',
  ],
  'a response is sent before its charge': [
    SALE,
    'settlement = await ledger.holds.settle(request, this.hold, onCommit);',
    `void ledger.holds.settle(request, this.hold).catch(() => undefined);
     const after = { usdNano: 0n as Nano, diemNano: 0n as Nano };
     settlement = { fresh: true, usdNano: outcome.costNano, diemNano: 0n as Nano, after };`,
  ],
  // Defects of former versions, of which the fix is taken out.
  'a running grant keeps the lease of a closed epoch': [
    'billing/ledger/postgres/leases.ts',
    'part.lease === undefined ? { ...want, lease: undefined } : want,',
    'part && want,',
    'return this.#parts.store.losses + this.#forgotten;',
    'return this.#parts.store.losses;',
    'waiting, lease: before }: LeaseCall',
    'waiting }: LeaseCall',
    '    const isKept = grant !== undefined && grant.id === before?.id;',
    '    const before = part.lease;\n    const isKept = grant !== undefined && grant.id === before?.id;',
  ],
  'a hold counts in periods of different days': [
    'billing/ledger/row-holds.ts',
    '  for (const { state } of counted) beginPeriod(state, atMs);\n',
    '  void atMs;\n',
  ],
  'a repeated settle fails if its lease is used up': [
    SETTLE,
    'if (isChecked || hold === undefined || !isCovered) {',
    'if (isChecked || hold === undefined) {',
  ],
  'a request that has lost its idempotency key is charged': [
    KEYS,
    "if (ended === 'lost') {\n      token",
    "if (ended === 'lost') return;\n    if (false) {\n      token",
  ],
  'a settle of the journal does not check its idempotency key': [
    KEYS,
    "return ended !== 'lost';",
    'return true;',
  ],
  'a cancellation in the newest block is final': [
    'payments/top-ups.ts',
    "if (evidence?.kind === 'final' && evidence.isConfirmed) {",
    "if (evidence?.kind === 'final') {",
    'reason, FIRST_RECHECK_MS);',
    "reason, 0);\n    await table.recordCheck({ ...row, state: 'failed' }, { isFinal: true });",
  ],
  'a server shows requests as left that others have taken': [
    'billing/limits/leased-windows.ts',
    'bucket.counters.requests = Math.max(0, requests - bucket.requestsLeft);',
    '',
  ],
  'a single node decides while the others are slow': [
    'payments/nodes.ts',
    'const VOTES = 2;',
    'const VOTES = 1;',
    '    if (graceMs > 0) await endsWithin(clock, graceMs, all);\n',
    '',
  ],
  'a video is sold before it is flushed': [
    'video/media-store.ts',
    '      await flushFile(part);\n',
    '',
  ],
  'a new video counts as one of a dead process': [
    'video/worker.ts',
    'if (!this.#admitting.has(id)) await',
    'await',
    'if (job !== undefined) await store.transaction((tx) => money.release(tx, job));',
    '',
  ],
  'the clock decides in which period of a limit a hold counts': [
    HOLDS,
    'caps === undefined ? nowMs : capsMsOf(nowMs, caps)',
    'nowMs',
    'import { capsMsOf, placeDurable }',
    'import { placeDurable }',
  ],
  'one node is enough for a slot, a block or a nonce': [
    'payments/nodes.ts',
    '.at(VOTES - 1);',
    '.at(0);',
  ],
  'a call without a response of a node is charged': [
    PROXY_RPC,
    'return await release(run, response);',
    "return void (await settle(run, { ...response, credits: body.creditsMax }, undefined, 'aborted'));",
  ],
  'a response that a node cuts is charged': [
    PROXY_RPC,
    '    if (rest.errored !== null && !isPrematureClose(rest.errored)) throw error;\n',
    '',
  ],
};

/** Lets the product be loaded with a bug. Call it before the first import of the product. */
export function plant(name: string): void {
  const bug = PLANTED[name];
  if (bug === undefined) throw new Error(`There is no planted bug "${name}"`);
  const source = planted(bug);
  registerHooks({
    load: (url, context, next) =>
      url === urlOf(bug).href
        ? { format: 'module-typescript', source, shortCircuit: true }
        : next(url, context),
  });
}

export function planted(bug: PlantedBug): string {
  const [file, ...texts] = bug;
  let source = readFileSync(urlOf(bug), 'utf8');
  for (let at = 0; at < texts.length; at += 2) {
    const parts = source.split(texts[at]!);
    if (parts.length !== 2) throw new Error(`${file} has ${parts.length - 1} times: ${texts[at]}`);
    source = parts.join(texts[at + 1]);
  }
  return source;
}

function urlOf([file]: PlantedBug): URL {
  return new URL(`../../src/${file}`, import.meta.url);
}
