/**
 * Bugs that can be planted in the product, to show that the simulation finds them. Each replaces a
 * text of one source file while it is loaded; nothing is written. A text that is no longer in its file
 * is an error, so that a bug is always really there.
 */
import { readFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
import { fileURLToPath } from 'node:url';

export interface PlantedBug {
  readonly name: string;
  /** Below `src/`. */
  readonly file: string;
  /** Texts and their replacements. */
  readonly edits: readonly (readonly [string, string])[];
}

const STORE = 'db/sqlite/sqlite-store.ts';
const HOLDS = 'billing/ledger/memory-holds.ts';
const SETTLE = 'billing/ledger/settle.ts';
const SALE = 'billing/sale.ts';
const KEYS = 'billing/idempotency/idempotency.ts';
const CARDS = 'payments/cards/card-table.ts';
const LEASES = 'billing/ledger/postgres/leases.ts';
const TOP_UPS = 'payments/top-ups.ts';

export const PLANTED: readonly PlantedBug[] = [
  {
    name: 'a charge is confirmed before its flush',
    file: STORE,
    edits: [
      ['if (work.durable) this.#unflushed.push(work);\n        else work.done();', 'work.done();'],
    ],
  },
  {
    name: 'a failed flush counts as done',
    file: STORE,
    edits: [
      [
        'if (failure === undefined) work.done();\n      else work.failed(new CommitUncertain(failure.message, { cause: failure }));',
        'work.done();',
      ],
    ],
  },
  {
    name: 'settles are not durable',
    file: HOLDS,
    edits: [['durable: true,', 'durable: false,']],
  },
  {
    name: 'a settled request keeps its hold',
    file: HOLDS,
    edits: [['this.release(settle.held);\n          settle.resolve', 'settle.resolve']],
  },
  {
    name: 'a failed request keeps its hold',
    file: SALE,
    edits: [["if (sale.state === 'held') await this.#releaseFailed(sale, failure);", '']],
  },
  {
    name: 'holds do not reserve credit',
    file: HOLDS,
    edits: [
      ['    account.usdNano += usdNano;\n', ''],
      ['    account.usdNano -= usdNano;\n', ''],
    ],
  },
  {
    name: 'holds do not count in the limit of a key',
    file: HOLDS,
    edits: [
      ['  counter.usdNano += hold.usdNano;\n', ''],
      [
        '  counter.usdNano -= usdNano;\n  counter.diemNano -= dailyNano;\n}\n\n/** Resets the counter, because',
        '}\n\n/** Resets the counter, because',
      ],
    ],
  },
  {
    name: 'small charges are not posted',
    file: SETTLE,
    edits: [['if (usdNano === 0n) continue;', 'if (usdNano < 20_000n) continue;']],
  },
  {
    name: 'a charge is a hundredth too high',
    file: SALE,
    edits: [
      [
        'const cost = { costNano: outcome.costNano,',
        'const cost = { costNano: ((outcome.costNano * 101n) / 100n) as Nano,',
      ],
    ],
  },
  {
    name: 'a finished idempotency key runs again',
    file: KEYS,
    edits: [
      [
        'WHERE idempotency_entry.expires_ms <= now_ms($6)\n',
        "WHERE idempotency_entry.expires_ms <= now_ms($6) OR idempotency_entry.state = 'done'\n",
      ],
    ],
  },
  {
    name: 'the same idempotency key runs twice at once',
    file: KEYS,
    edits: [
      ['if (!this.#live.has(placeOf(wanted))) {', '{'],
      [
        'WHERE idempotency_entry.expires_ms <= now_ms($6)\n',
        "WHERE idempotency_entry.expires_ms <= now_ms($6) OR idempotency_entry.state = 'running'\n",
      ],
      ["throw new Fault('REQUEST_IN_PROGRESS', { message: LOST });", 'return;'],
    ],
  },
  {
    name: 'a repeated credit is posted again',
    file: 'billing/ledger/operator-moves.ts',
    edits: [
      [
        'const id = `${direction}-${reference}`;',
        'const id = `${direction}-${reference}-${nowMs}`;',
      ],
    ],
  },
  {
    name: 'a credit of the operator is not durable',
    file: 'billing/ledger/ledger.ts',
    edits: [
      [
        'return this.creditIn(tx, { ...noted, from: house });\n        return this.debitIn(tx, { ...noted, to: house });\n      }),\n    );',
        'return this.creditIn(tx, { ...noted, from: house });\n        return this.debitIn(tx, { ...noted, to: house });\n      }),\n      { durable: false },\n    );',
      ],
    ],
  },
  {
    name: 'a card payment is applied from old facts',
    file: CARDS,
    edits: [
      [
        'WHERE id = $1 AND version = $2 RETURNING id',
        'WHERE id = $1 AND version > $2 - 9 RETURNING id',
      ],
    ],
  },
  {
    name: 'a returned card payment is not reversed',
    file: CARDS,
    edits: [
      [
        'larger(ZERO, nano(facts.paidNano - facts.returnedNano))',
        'larger(payment.creditedNano, nano(facts.paidNano - facts.returnedNano))',
      ],
    ],
  },
  {
    name: 'lost webhooks are not looked for',
    file: 'payments/cards/card-payments.ts',
    edits: [
      [
        'for await (const event of provider.events(sinceMs - EVENTS_OVERLAP_MS)) {',
        'for (const event of [] as { notice: undefined; createdMs: number }[]) {',
      ],
    ],
  },
  {
    name: 'a card payment is not read again without a webhook',
    file: 'payments/cards/card-payments.ts',
    edits: [
      ["if (state === 'open') return clock.nowMs() + Math.min(pauseMs, MAX_OPEN_CHECK_MS);", ''],
      [
        'for await (const event of provider.events(sinceMs - EVENTS_OVERLAP_MS)) {',
        'for (const event of [] as { notice: undefined; createdMs: number }[]) {',
      ],
    ],
  },
  {
    name: 'the row of a card payment is written after its page',
    file: CARDS,
    edits: [
      [
        'return rows.map(PAYMENT.parse)[0];\n    });\n  }\n\n  async opened',
        'return rows.map(PAYMENT.parse)[0];\n    }, { durable: false });\n  }\n\n  async opened',
      ],
    ],
  },
  {
    name: 'a request does not end',
    file: 'http/http.ts',
    edits: [
      [
        'if (!context.answered) context.destroy();\n      context.finish();',
        'if (context.answered) context.finish();',
      ],
    ],
  },
  {
    name: 'a response is sent before its charge',
    file: SALE,
    edits: [
      [
        'settlement = await ledger.holds.settle(request, this.hold, onCommit);',
        'void ledger.holds.settle(request, this.hold).catch(() => undefined); settlement = { fresh: true, usdNano: outcome.costNano, diemNano: 0n as Nano, after: { usdNano: 0n as Nano, diemNano: 0n as Nano } };',
      ],
    ],
  },
  // Defects of former versions, of which the fix is taken out.
  {
    name: 'a running grant keeps the lease of a closed epoch',
    file: LEASES,
    edits: [
      ['part.lease === undefined ? { ...want, lease: undefined } : want,', 'part && want,'],
      ['return this.#parts.store.losses + this.#forgotten;', 'return this.#parts.store.losses;'],
      ['waiting, lease: before }: LeaseCall', 'waiting }: LeaseCall'],
      [
        '    const isKept = grant !== undefined && grant.id === before?.id;',
        '    const before = part.lease;\n    const isKept = grant !== undefined && grant.id === before?.id;',
      ],
    ],
  },
  {
    name: 'a hold counts in periods of different days',
    file: 'billing/ledger/row-holds.ts',
    edits: [['  for (const { state } of counted) beginPeriod(state, atMs);\n', '  void atMs;\n']],
  },
  {
    name: 'a repeated settle fails if its lease is used up',
    file: SETTLE,
    edits: [
      [
        'if (isChecked || hold === undefined || !isCovered) {',
        'if (isChecked || hold === undefined) {',
      ],
    ],
  },
  {
    name: 'a request that has lost its idempotency key is charged',
    file: KEYS,
    edits: [
      [
        "if (ended === 'lost') {\n      token",
        "if (ended === 'lost') return;\n    if (false) {\n      token",
      ],
    ],
  },
  {
    name: 'a settle of the journal does not check its idempotency key',
    file: KEYS,
    edits: [["return ended !== 'lost';", 'return true;']],
  },
  {
    name: 'a cancellation in the newest block is final',
    file: TOP_UPS,
    edits: [
      [
        "if (evidence?.kind === 'final' && evidence.isConfirmed) {",
        "if (evidence?.kind === 'final') {",
      ],
      ['reason, clock.nowMs() + FIRST_RECHECK_MS);', 'reason, clock.nowMs() * 2);'],
    ],
  },
  {
    name: 'a single node decides while the others are slow',
    file: 'payments/nodes.ts',
    edits: [
      ['const VOTES = 2;', 'const VOTES = 1;'],
      ['    await endsWithin(clock, GRACE_MS, all);\n', ''],
    ],
  },
];

const SOURCE = new URL('../../src/', import.meta.url);

/** Lets the product be loaded with a bug. Call it before the first import of the product. */
export function plant(name: string): void {
  const bug = PLANTED.find((one) => one.name === name);
  if (bug === undefined) throw new Error(`There is no planted bug "${name}"`);
  const url = new URL(bug.file, SOURCE).href;
  const source = planted(bug);
  registerHooks({
    load: (loaded, context, next) =>
      loaded === url
        ? { format: 'module-typescript', source, shortCircuit: true }
        : next(loaded, context),
  });
}

export function planted({ file, edits }: PlantedBug): string {
  let source = readFileSync(fileURLToPath(new URL(file, SOURCE)), 'utf8');
  for (const [text, replacement] of edits) {
    const parts = source.split(text);
    if (parts.length !== 2) throw new Error(`${file} has ${parts.length - 1} times: ${text}`);
    source = parts.join(replacement);
  }
  return source;
}
