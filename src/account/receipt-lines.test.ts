import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { UsageRow } from '../billing/ledger/ledger.ts';
import { receiptLines } from './receipt-lines.ts';

function row(usdNano: bigint, extras: object, tokens: Partial<UsageRow> = {}): UsageRow {
  return {
    account_id: 'a',
    request_id: 'r',
    created_ms: 0n,
    key_id: '',
    kind: 'chat',
    model_id: 'm',
    replica: null,
    attempts: 1n,
    prompt_tokens: 0n,
    completion_tokens: 0n,
    cached_tokens: 0n,
    cache_write_tokens: 0n,
    reasoning_tokens: 0n,
    counted_by: 'engine',
    price_version: 'v',
    usd_nano: usdNano,
    diem_nano: 0n,
    latency_ms: 0n,
    first_token_ms: null,
    status: 'completed',
    extras: JSON.stringify(extras),
    reserved_nano: null,
    metadata: null,
    cost_nano: null,
    cost_lines: null,
    ...tokens,
  };
}

const SEARCH = { web_search: { count: 2, usd: '0.020000000' } };

test('a receipt has a line for each kind of work', () => {
  const tokens = { prompt_tokens: 100n, cached_tokens: 40n, completion_tokens: 10n };
  const cases: [
    UsageRow,
    object | null,
    [kind: string, quantity: number | undefined, usd: string][] | null,
  ][] = [
    [
      row(111_000n, {}, tokens),
      { input: '1', cacheInput: '0.1', output: '4', perRequest: '0.000007' },
      [
        ['input_tokens', 60, '0.00006'],
        ['cache_read_tokens', 40, '0.000004'],
        ['output_tokens', 10, '0.00004'],
        ['request', 1, '0.000007'],
      ],
    ],
    [
      row(20_100_000n, SEARCH, { prompt_tokens: 100n }),
      { input: '1', output: '4' },
      [
        ['input_tokens', 100, '0.0001'],
        ['web_search', 2, '0.02'],
      ],
    ],
    // A chat without output is free, but not its searches.
    [row(20_000_000n, SEARCH, tokens), { input: '1', output: '4' }, [['web_search', 2, '0.02']]],
    [row(0n, {}, tokens), { input: '1', output: '4' }, []],
    [row(60_000_000n, { images: 2 }), { perImage: '0.03' }, [['image', 2, '0.06']]],
    [
      row(150_000_000n, {
        images: 3,
        lines: [
          { kind: 'image', count: 2, price: '0.04' },
          { kind: 'image', count: 1, price: '0.07' },
        ],
      }),
      { perImage: '0.03', imageRates: [] },
      [
        ['image', 2, '0.08'],
        ['image', 1, '0.07'],
      ],
    ],
    [
      row(150_000n, { audioSeconds: 1.5 }),
      { perSecond: '0.0001' },
      [['audio_seconds', 1.5, '0.00015']],
    ],
    [
      row(4_995_000n, { characters: 333 }),
      { perMillionCharacters: '15' },
      [['characters', 333, '0.004995']],
    ],
    [
      row(6_000_000n, { searches: 3 }, { prompt_tokens: 7n }),
      { perSearch: '0.002' },
      [['searches', 3, '0.006']],
    ],
    [
      row(12_500n, { credits: 20, items: 1 }),
      { perCredit: '0.000000625' },
      [['credits', 20, '0.0000125']],
    ],
    [row(500_000_000n, { quoteUsd: '0.5' }), { quote: '0.500000000' }, [['quote', 1, '0.5']]],
    [
      row(500_000_000n, { quoteUsd: '0.5', refundedUsd: '0.500000000' }),
      { quote: '0.500000000' },
      [
        ['quote', 1, '0.5'],
        ['refund', undefined, '-0.5'],
      ],
    ],
    // The charge was limited by the hold.
    [
      row(80_000n, {}, { prompt_tokens: 100n }),
      { input: '1', output: '4' },
      [
        ['input_tokens', 100, '0.0001'],
        ['above_hold', undefined, '-0.00002'],
      ],
    ],
    [
      row(1n, {}, { prompt_tokens: 1n }),
      { input: '0.0005', output: '4' },
      [
        ['input_tokens', 1, '0.0000000005'],
        ['rounding', undefined, '0.0000000005'],
      ],
    ],
    [row(1n, {}, tokens), null, null],
  ];
  for (const [given, prices, expected] of cases) {
    const unit = prices as Readonly<Record<string, unknown>> | null; // a row of `cases`
    const lines = receiptLines(given, { unit, list: undefined });
    const short = lines?.map(({ kind, quantity, usd }) => [kind, quantity, usd]) ?? null;
    assert.deepEqual(short, expected, given.extras ?? '');
  }
});
