/** Response bodies of receipts, and the prices that were used for them. */
import { type UsageRow, pricesOf, rememberPrices } from '../billing/ledger/ledger.ts';
import type { CatalogModel, Price } from '../catalog/catalog.ts';
import { isoTime } from '../core/clock.ts';
import { formatUsd, toUsdNumber } from '../core/money.ts';
import type { Config } from '../config/config.ts';
import { isEvm, paymentNetworks } from '../payments/payments.ts';
import type { AccountParts } from './account-parts.ts';
import { walletOfAccount } from '../identity/identity.ts';
import { type ReceiptPrices, receiptLines } from './receipt-lines.ts';
import type { Receipt, ReceiptResponse, SignedReceipt } from './usage-schema.ts';

/** Network of credit that is not from a wallet. */
const PREPAID = 'ledger:prepaid';

export function receiptBody(row: UsageRow): Receipt {
  return {
    object: 'receipt',
    requestId: row.request_id,
    createdAt: isoTime(Number(row.created_ms)),
    apiKeyId: row.key_id === '' ? null : row.key_id,
    kind: row.kind,
    model: row.model_id,
    status: row.status,
    router: row.replica,
    attempts: Number(row.attempts),
    tokens: {
      prompt: Number(row.prompt_tokens),
      completion: Number(row.completion_tokens),
      cached: Number(row.cached_tokens),
      cacheWrite: Number(row.cache_write_tokens),
      reasoning: Number(row.reasoning_tokens),
      countedBy: row.counted_by,
    },
    priceVersion: row.price_version,
    cost: { usd: toUsdNumber(row.usd_nano), diem: toUsdNumber(row.diem_nano) },
    reserved: row.reserved_nano === null ? null : toUsdNumber(row.reserved_nano),
    latencyMs: Number(row.latency_ms),
    firstTokenMs: row.first_token_ms === null ? null : Number(row.first_token_ms),
    extras: shownExtras(row),
    metadata: JSON.parse(row.metadata ?? '{}') as Record<string, string>, // written by the ledger
  };
}

/** The lines are a member of the receipt. */
function shownExtras({ extras }: UsageRow): Record<string, unknown> {
  const stored = JSON.parse(extras ?? '{}') as Record<string, unknown>; // written by the ledger
  const { lines: _lines, ...shown } = stored;
  return shown;
}

/** The claims of a signed receipt: everything that determines the cost; amounts are decimal text. */
export function signedUsage(row: UsageRow, prices: ReceiptPrices): SignedReceipt['usage'] {
  const receipt = receiptBody(row);
  const { requestId, createdAt, kind, model, status, tokens, priceVersion, extras } = receipt;
  const cost = { usd: formatUsd(row.usd_nano), diem: formatUsd(row.diem_nano) };
  const request = { requestId, createdAt, kind, model, status, tokens, priceVersion };
  const lines = receiptLines(row, prices);
  return { ...request, ...shownPrices(prices), lines, cost, extras };
}

/** The payer of a request: a wallet with its network, or an account. */
export function payerOf(
  accountId: string,
  { payments }: Config,
): { readonly payer: string; readonly network: string } {
  const wallet = walletOfAccount(accountId);
  if (wallet === undefined) return { payer: `account:${accountId}`, network: PREPAID };
  const network = paymentNetworks(payments).find((one) => isEvm(one) === wallet.startsWith('0x'));
  return { payer: wallet, network: network ?? PREPAID };
}

/** Versions that contain the price of an RPC credit or of a quoted video, then a differing list price. */
const STATED_PRICE = /^(rpc|quote)-(\d{1,18})(?:-(\d{1,18}))?$/;

type PriceSources = Pick<AccountParts, 'stores'> & Partial<Pick<AccountParts, 'catalog'>>;

export async function pricedReceipt(parts: PriceSources, row: UsageRow): Promise<ReceiptResponse> {
  const prices = await receiptPrices(parts, row);
  return { ...receiptBody(row), ...shownPrices(prices), lines: receiptLines(row, prices) };
}

function shownPrices({ unit, list }: ReceiptPrices) {
  return { unitPrices: unit, ...(list === undefined ? {} : { listPrices: list }) };
}

/** The prices of a receipt; `unit` is `null` for prices that were in force for less than a minute. */
export async function receiptPrices(
  { catalog, stores }: PriceSources,
  { model_id: model, price_version: version }: UsageRow,
): Promise<ReceiptPrices> {
  const [, kind, amount, listAmount] = STATED_PRICE.exec(version) ?? [];
  if (amount !== undefined) {
    const stated = (text: string) => {
      return { [kind === 'rpc' ? 'perCredit' : 'quote']: formatUsd(BigInt(text)) };
    };
    return {
      unit: stated(amount),
      list: listAmount === undefined ? undefined : stated(listAmount),
    };
  }
  const inForce =
    pricesIn(catalog?.get(model)).find((one) => one.version === version) ??
    catalog?.customers.priceOf(version);
  if (inForce !== undefined) return { unit: { ...inForce.row }, list: inForce.list?.row };
  const stored = await pricesOf(stores.store, version);
  if (stored === undefined) return { unit: null, list: undefined };
  const { list, ...unit } = JSON.parse(stored) as StoredPrices; // by `keep`
  return { unit, list };
}

interface StoredPrices extends Record<string, unknown> {
  readonly list?: Record<string, unknown>;
}

/** The prices of a model that requests can have: by default, in batches, by tier and time. */
function pricesIn(model: CatalogModel | undefined): Price[] {
  return [model?.price, model?.batchPrice].flatMap((price) =>
    price === undefined ? [] : [price, ...(price.variants?.used() ?? [])],
  );
}

/** Stores the current prices, so that a receipt can contain its prices after they have changed. */
export class PriceKeeper {
  readonly #parts: AccountParts;
  readonly #stored = new Set<string>();

  constructor(parts: AccountParts) {
    this.#parts = parts;
  }

  async keep(): Promise<void> {
    const { catalog, stores } = this.#parts;
    const fresh = new Map<string, string>();
    const add = ({ version, row, list }: Price): void => {
      if (this.#stored.has(version)) return;
      fresh.set(version, JSON.stringify(list === undefined ? row : { ...row, list: list.row }));
    };
    for (const model of catalog.models()) pricesIn(model).forEach(add);
    for (const price of catalog.customers.prices()) add(price);
    if (fresh.size === 0) return;
    await rememberPrices(stores.store, fresh);
    for (const version of fresh.keys()) this.#stored.add(version);
  }
}
