/**
 * The lines of a receipt: each priced kind of work with its quantity, price and amount. Amounts are
 * exact decimals, and their sum is the charge; the rounding of a charge is a line of its own.
 */
import { compilePrice, tokenLines, tokenPrices } from '../catalog/catalog.ts';
import type { SupplierCost, UsageRow } from '../billing/ledger/ledger.ts';
import { FEMTO_PER_NANO, formatUsd, usdToNano } from '../core/money.ts';
import type { ReceiptLine } from './receipt-line-schema.ts';
import type { ReceiptResponse } from './usage-schema.ts';

/** The price rows of a receipt. `list`: the list prices, if the account had own prices. */
export interface ReceiptPrices {
  readonly unit: ReceiptResponse['unitPrices'];
  readonly list: NonNullable<ReceiptResponse['unitPrices']> | undefined;
}

/** `nano`: price of one unit, or of a million tokens or characters. */
interface Line {
  readonly kind: string;
  readonly count: bigint;
  readonly nano: bigint;
  /** The list price, for an account with its own prices. */
  readonly listNano?: bigint | undefined;
}

const MILLION = 1_000_000;
/** Kinds that are priced by the million. */
const PER_MILLION: Readonly<Record<string, string>> = {
  input: 'input_tokens',
  output: 'output_tokens',
  cacheInput: 'cache_read_tokens',
  cacheWrite: 'cache_write_tokens',
  cacheWrite1h: 'cache_write_1h_tokens',
  audioInput: 'audio_input_tokens',
  imageInput: 'image_input_tokens',
  reasoning: 'reasoning_tokens',
  audioOutput: 'audio_output_tokens',
  imageOutput: 'image_output_tokens',
  characters: 'characters',
};

/** `null` if the prices are no longer known. */
export function receiptLines(row: UsageRow, prices: ReceiptPrices): ReceiptLine[] | null {
  const chargedNano = row.usd_nano + row.diem_nano;
  const extras = extrasOf(row);
  const refunded = extras['refundedUsd'];
  if (chargedNano === 0n && refunded === undefined) return [];
  const surcharges = surchargesIn(extras);
  const isOnlySurcharges = sumOf(surcharges) === chargedNano * FEMTO_PER_NANO;
  const lines = isOnlySurcharges ? [] : workLines(row, extras, prices);
  if (lines === null) return null;
  const shown = [...lines, ...surcharges].map(lineText);
  let rest = chargedNano * FEMTO_PER_NANO - sumOf(lines) - sumOf(surcharges);
  if (typeof refunded === 'string') {
    shown.push({ kind: 'refund', usd: `-${trimmed(usdToNano(refunded) * FEMTO_PER_NANO)}` });
    rest = 0n;
  }
  if (rest === 0n) return shown;
  const isRounding = rest < FEMTO_PER_NANO && rest > -FEMTO_PER_NANO;
  // A charge is limited by its hold.
  if (!isRounding && rest > 0n) return null;
  return [...shown, { kind: isRounding ? 'rounding' : 'above_hold', usd: trimmed(rest) }];
}

/** The cost of the supplier, for operators; `null` if it is not known. */
export function supplierCostOf(
  row: Pick<UsageRow, 'cost_nano' | 'cost_lines'>,
): { readonly usd: string; readonly lines: ReceiptLine[] } | null {
  if (row.cost_nano === null) return null;
  const stored = JSON.parse(row.cost_lines ?? '[]') as SupplierCost['lines']; // written by the ledger
  const lines = stored.map(([kind, count, price]): Line => {
    return { kind, count: BigInt(count), nano: usdToNano(price) };
  });
  const rest = row.cost_nano * FEMTO_PER_NANO - sumOf(lines);
  const rounding = rest === 0n ? [] : [{ kind: 'rounding', usd: trimmed(rest) }];
  return { usd: formatUsd(row.cost_nano), lines: [...lines.map(lineText), ...rounding] };
}

function extrasOf(row: UsageRow): Readonly<Record<string, unknown>> {
  return JSON.parse(row.extras ?? '{}') as Record<string, unknown>; // written by the ledger
}

function workLines(
  row: UsageRow,
  extras: Readonly<Record<string, unknown>>,
  { unit, list }: ReceiptPrices,
): Line[] | null {
  if (unit === null) return null;
  const { quote, perCredit, ...settings } = unit;
  const listNano = (name: string) =>
    typeof list?.[name] === 'string' ? usdToNano(list[name]) : undefined;
  if (typeof quote === 'string') {
    return [{ kind: 'quote', count: 1n, nano: usdToNano(quote), listNano: listNano('quote') }];
  }
  if (typeof perCredit === 'string') {
    const [count, nano] = [countIn(extras, 'credits'), usdToNano(perCredit)];
    return [{ kind: 'credits', count, nano, listNano: listNano('perCredit') }];
  }
  const price = compilePrice(settings);
  const listPrice = list && compilePrice(list);
  const tokensAtList = listPrice && tokenPrices(listPrice, Number(row.prompt_tokens));
  const stored = storedLines(extras);
  const hasTokens = stored.length === 0 && price.tokens !== undefined;
  const units: Line[] = [
    ...stored,
    ...(hasTokens ? tokenLines(usageOf(row), price) : []).map(({ kind, count, rate }) => {
      return { kind, count, nano: rate, listNano: tokensAtList?.get(kind) };
    }),
    {
      kind: 'audio_ms',
      count: audioMs(extras),
      nano: price.perSecond ?? 0n,
      listNano: listPrice?.perSecond,
    },
    {
      kind: 'characters',
      count: countIn(extras, 'characters'),
      nano: price.perCharacter ?? 0n,
      listNano: listPrice?.perCharacter,
    },
    {
      kind: 'searches',
      count: countIn(extras, 'searches'),
      nano: price.perSearch ?? 0n,
      listNano: listPrice?.perSearch,
    },
    { kind: 'request', count: 1n, nano: price.perRequest, listNano: listPrice?.perRequest },
  ];
  if (stored.length === 0) {
    const count = countIn(extras, 'images');
    units.push({
      kind: 'image',
      count,
      nano: price.perImage ?? 0n,
      listNano: listPrice?.perImage,
    });
  }
  // A discount of 100 % leaves a line that shows the list price.
  const free = ({ kind, listNano: usual = 0n }: Line): boolean =>
    usual > 0n || (kind !== 'request' && PER_MILLION[kind] !== undefined);
  return units.filter((line) => line.count > 0n && (line.nano > 0n || free(line)));
}

function usageOf(row: UsageRow) {
  return {
    promptTokens: Number(row.prompt_tokens),
    completionTokens: Number(row.completion_tokens),
    cachedTokens: Number(row.cached_tokens),
    cacheWriteTokens: Number(row.cache_write_tokens),
  };
}

function countIn(extras: Readonly<Record<string, unknown>>, name: string): bigint {
  const count = extras[name];
  return typeof count === 'number' ? BigInt(count) : 0n;
}

function audioMs({ audioSeconds }: Readonly<Record<string, unknown>>): bigint {
  return typeof audioSeconds === 'number' ? BigInt(Math.round(audioSeconds * 1_000)) : 0n;
}

interface Stored {
  readonly kind: string;
  readonly count: number;
  readonly price: string;
  readonly list?: string;
}

/** Lines that do not follow from the counts of the receipt. */
function storedLines({ lines = [] }: Readonly<Record<string, unknown>>): Line[] {
  const stored = lines as readonly Stored[]; // written when the request was charged
  return stored.map(({ kind, count, price, list }) => {
    const listNano = list === undefined ? undefined : usdToNano(list);
    return { kind, count: BigInt(count), nano: usdToNano(price), listNano };
  });
}

const SURCHARGES = ['web_search', 'web_scraping', 'x_search'];

function surchargesIn(extras: Readonly<Record<string, unknown>>): Line[] {
  return SURCHARGES.flatMap((kind) => {
    const given = extras[kind] as { readonly count: number; readonly usd: string } | undefined; // ours
    if (given === undefined || given.count === 0) return [];
    return [{ kind, count: BigInt(given.count), nano: usdToNano(given.usd) / BigInt(given.count) }];
  });
}

/** Femto-USD. */
function amountOf({ kind, count, nano }: Line): bigint {
  if (PER_MILLION[kind] !== undefined) return count * nano;
  return count * nano * (kind === 'audio_ms' ? FEMTO_PER_NANO / 1_000n : FEMTO_PER_NANO);
}

function sumOf(lines: readonly Line[]): bigint {
  return lines.reduce((sum, line) => sum + amountOf(line), 0n);
}

function lineText(line: Line): ReceiptLine {
  const { kind, count, nano, listNano } = line;
  const name = PER_MILLION[kind];
  const usd = trimmed(amountOf(line));
  const price = {
    price: trimmed(nano * FEMTO_PER_NANO),
    ...(listNano === undefined ? {} : { listPrice: trimmed(listNano * FEMTO_PER_NANO) }),
    usd,
  };
  if (name !== undefined) return { kind: name, quantity: Number(count), per: MILLION, ...price };
  if (kind !== 'audio_ms') return { kind, quantity: Number(count), per: 1, ...price };
  return { kind: 'audio_seconds', quantity: Number(count) / 1_000, per: 1, ...price };
}

/** Exact decimal text of femto-USD, without zeros at the end. */
function trimmed(femto: bigint): string {
  const magnitude = femto < 0n ? -femto : femto;
  const whole = formatUsd(magnitude / FEMTO_PER_NANO);
  const fraction = String(magnitude % FEMTO_PER_NANO).padStart(6, '0');
  const text = `${whole}${fraction}`;
  let end = text.length;
  while (text[end - 1] === '0') end -= 1;
  if (text[end - 1] === '.') end -= 1;
  return `${femto < 0n ? '-' : ''}${text.slice(0, end)}`;
}
