/**
 * `GET /usage`: usage by day, model and key; `GET /usage/tags`: by tag; both as JSON pages or one CSV file.
 * `GET /usage/{request id}`: the receipt of a request, also signed.
 */
import {
  type UsageFilter,
  type UsageRow,
  countUsageTags,
  receiptOf,
  countUsageDays,
  usageDays,
  usageTags,
  usageTotals,
} from '../billing/ledger/ledger.ts';
import { Fault } from '../core/faults.ts';
import { offsetOf, pageHeaders, readQuery } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { type Route, get } from '../http/route.ts';
import type { Signing } from '../payments/payments.ts';
import { type AccountParts, requestIdOf } from './account-parts.ts';
import { payerOf, pricedReceipt, signedUsage, receiptPrices } from './receipts.ts';
import {
  badQuery,
  csvField,
  csvSums,
  dayText,
  headOf,
  rangeOf,
  sumsOf,
  visibleKey,
  MAX_CSV_ROWS,
  sendCsv,
  wantsCsv,
} from './usage-query.ts';
import {
  CSV_HEAD,
  CSV_HEAD_OF_TAG,
  CSV_HEAD_OF_TAGS,
  RECEIPT,
  SIGNED_RECEIPT,
  type SignedReceipt,
  USAGE,
  USAGE_TAGS,
  type UsageResponse,
  UsageQuery,
  type UsageTagsResponse,
} from './usage-schema.ts';

const ALL_ROWS = { limit: MAX_CSV_ROWS + 1, offset: 0 };

export function usageRoutes(parts: AccountParts, signing: Signing | undefined): Route[] {
  return [
    get('/usage', 'key-or-wallet', USAGE, (context) => sendUsage(parts, context)),
    get('/usage/tags', 'key-or-wallet', USAGE_TAGS, (context) => sendTags(parts, context)),
    get('/usage/:id', 'key-or-wallet', RECEIPT, (context) => sendReceipt(parts, context)),
    ...(signing === undefined
      ? []
      : [
          get('/usage/:id/signed', 'key-or-wallet', SIGNED_RECEIPT, (context) =>
            sendSigned(parts, signing, context),
          ),
        ]),
  ];
}

async function sendUsage(parts: AccountParts, context: RequestContext): Promise<void> {
  const query = readQuery(context, UsageQuery);
  const filter = filterOf(parts, context, query);
  const store = parts.stores.store.readerFor(filter.accountId);
  if (wantsCsv(context, query)) {
    const head = filter.tag === undefined ? CSV_HEAD : CSV_HEAD_OF_TAG;
    return sendCsv(
      context,
      'usage',
      filter,
      head,
      await usageDays(store, filter, ALL_ROWS),
      (row) => [
        dayText(Number(row.day)),
        csvField(row.model_id),
        csvField(row.key_id),
        ...csvSums(row),
        ...(row.tag_value === null ? [] : [csvField(row.tag_value)]),
      ],
    );
  }
  const [rows, totals, count] = await Promise.all([
    usageDays(store, filter, { limit: query.limit, offset: offsetOf(query) }),
    usageTotals(store, filter),
    countUsageDays(store, filter),
  ]);
  const body: UsageResponse = {
    ...headOf(filter),
    totals: sumsOf(totals),
    data: rows.map((row) => ({
      date: dayText(Number(row.day)),
      model: row.model_id,
      apiKeyId: row.key_id === '' ? null : row.key_id,
      ...(row.tag_value === null ? {} : { tagValue: row.tag_value }),
      ...sumsOf(row),
    })),
  };
  context.setAll(pageHeaders(query, count));
  await context.json(200, body);
}

async function sendTags(parts: AccountParts, context: RequestContext): Promise<void> {
  const query = readQuery(context, UsageQuery);
  const filter = filterOf(parts, context, query);
  const store = parts.stores.store.readerFor(filter.accountId);
  if (wantsCsv(context, query)) {
    const rows = await usageTags(store, filter, ALL_ROWS);
    return sendCsv(context, 'usage', filter, CSV_HEAD_OF_TAGS, rows, (row) => [
      csvField(row.name),
      csvField(row.value),
      ...csvSums(row),
    ]);
  }
  const [rows, total] = await Promise.all([
    usageTags(store, filter, { limit: query.limit, offset: offsetOf(query) }),
    countUsageTags(store, filter),
  ]);
  const body: UsageTagsResponse = {
    ...headOf(filter),
    data: rows.map((row) => ({ tag: row.name, value: row.value, ...sumsOf(row) })),
  };
  context.setAll(pageHeaders(query, total));
  await context.json(200, body);
}

function filterOf(parts: AccountParts, context: RequestContext, query: UsageQuery): UsageFilter {
  const { tag, tagValue } = query;
  if (tagValue !== undefined && tag === undefined) {
    throw badQuery('tag', 'Must be the tag of "tagValue"');
  }
  return {
    accountId: context.caller.accountId,
    ...rangeOf(query, parts.clock.nowMs()),
    keyId: visibleKey(context.caller, query.key),
    modelId: query.model,
    tag,
    tagValue,
  };
}

async function sendReceipt(parts: AccountParts, context: RequestContext): Promise<void> {
  const receipt = await ownReceipt(parts, context);
  await context.json(200, await pricedReceipt(parts, receipt));
}

async function sendSigned(
  parts: AccountParts,
  signing: Signing,
  context: RequestContext,
): Promise<void> {
  const receipt = await ownReceipt(parts, context);
  const usage = signedUsage(receipt, await receiptPrices(parts, receipt));
  const { accountId } = context.caller;
  const { payer, network } = payerOf(accountId, parts.config.current);
  const { request_id: requestId } = receipt;
  const body: SignedReceipt = await signing.used({ requestId, payer, network, usage });
  await context.json(200, body);
}

/** The receipt of the path. Throws 404 if the caller has no such request. */
async function ownReceipt(parts: AccountParts, context: RequestContext): Promise<UsageRow> {
  const { caller } = context;
  const id = requestIdOf(context.parameters['id'] ?? '');
  const receipt = await receiptOf(parts.stores.store, caller.accountId, id);
  const owned = visibleKey(caller, undefined);
  if (receipt === undefined || (owned !== undefined && receipt.key_id !== owned)) {
    throw new Fault('REQUEST_ID_NOT_FOUND', {
      message:
        'Request not found: the id must be the x-request-id of a charged response of this account',
    });
  }
  return receipt;
}
