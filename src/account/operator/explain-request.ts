/**
 * Explains one request from its id: caller, parameters, tries, the response, the charge and its
 * reason, and the next step. Sources are the receipt, and the record of a failed or retried request.
 */
import type { UsageRow } from '../../billing/ledger/ledger.ts';
import { receiptOf } from '../../billing/ledger/ledger.ts';
import { isoTime } from '../../core/clock.ts';
import { FAULTS, type FaultCode } from '../../core/faults.ts';
import { decimalUsd } from '../../core/money.ts';
import { type FailureRecord, failureOf } from '../../observability/failure-log.ts';
import { type AccountParts, requestIdOf } from '../account-parts.ts';
import { supplierCostOf } from '../receipt-lines.ts';
import { pricedReceipt } from '../receipts.ts';
import { operatorStep } from './next-steps.ts';
import type { ExplainedRequest } from './operator-requests-schema.ts';

type ExplainParts = Pick<AccountParts, 'stores'> &
  Partial<Pick<AccountParts, 'catalog' | 'failureLog'>>;

/** `id`: a request id, or the id of a completion. Returns `undefined` for an unknown request. */
export async function explainRequest(
  parts: ExplainParts,
  id: string,
): Promise<ExplainedRequest | undefined> {
  const { store, identity } = parts.stores;
  const requestId = requestIdOf(id);
  const [failure, receipt] = await Promise.all([
    parts.failureLog?.find(requestId) ?? failureOf(store, requestId),
    receiptOf(store, undefined, requestId),
  ]);
  if (failure === undefined && receipt === undefined) return undefined;
  const accountId = receipt?.account_id ?? failure?.accountId ?? '';
  const keyId = receipt?.key_id ?? failure?.keyId ?? '';
  const [account, key] = await Promise.all([
    accountId === '' ? undefined : identity.findAccount(accountId),
    keyId === '' ? undefined : identity.findKey(accountId, keyId),
  ]);
  const code = codeOf(failure);
  const tries = failure?.facts.tries ?? [];
  return {
    requestId,
    createdAt: isoTime(failure?.createdMs ?? Number(receipt?.created_ms)),
    account:
      accountId === ''
        ? null
        : { id: accountId, name: account?.name ?? '', plan: account?.plan ?? '' },
    apiKey: keyId === '' ? null : { id: keyId, description: key?.description ?? '' },
    route: failure?.route ?? null,
    kind: receipt?.kind ?? null,
    model: receipt?.model_id ?? failure?.modelId ?? null,
    engine: receipt?.replica ?? failure?.engine ?? null,
    parameters: failure?.facts.parameters ?? {},
    prompt: failure?.prompt ?? null,
    tries: tries.map(({ startedMs, status, ...tried }) => ({
      ...tried,
      startedAt: isoTime(startedMs),
      status: status ?? null,
    })),
    response: {
      status: failure?.status ?? (receipt === undefined ? null : statusOf(receipt)),
      code: code ?? null,
      message: failure === undefined || failure.facts.message === '' ? null : failure.facts.message,
      cause: failure === undefined || failure.facts.cause === '' ? null : failure.facts.cause,
      tookMs: failure?.tookMs ?? Number(receipt?.latency_ms),
    },
    charge: {
      usd: decimalUsd(receipt?.usd_nano ?? 0n),
      diem: decimalUsd(receipt?.diem_nano ?? 0n),
      reserved: receipt?.reserved_nano == null ? null : decimalUsd(receipt.reserved_nano),
      why: receipt === undefined ? unchargedReason(failure, code) : chargeReason(receipt),
    },
    supplier: receipt === undefined ? null : supplierCostOf(receipt),
    receipt: receipt === undefined ? null : await pricedReceipt(parts, receipt),
    nextStep: {
      operator: stepOf(failure, receipt, code),
      // The console and the command show plain text.
      caller: code === undefined ? null : FAULTS[code].remedy.replaceAll('`', ''),
    },
  };
}

function codeOf(failure: FailureRecord | undefined): FaultCode | undefined {
  // A record of another version can have a code that no longer exists.
  return failure !== undefined && Object.hasOwn(FAULTS, failure.code)
    ? (failure.code as FaultCode)
    : undefined;
}

/** A request without a record has succeeded at once, or its caller has disconnected. */
function statusOf({ status }: UsageRow): number | null {
  return status === 'completed' || status === 'running' ? 200 : null;
}

function stepOf(
  failure: FailureRecord | undefined,
  receipt: UsageRow | undefined,
  code: FaultCode | undefined,
): string {
  if (failure !== undefined && failure.facts.message !== '' && code === undefined) {
    return 'Nothing: the caller has closed the connection; a shorter time to the first token may keep it';
  }
  if (failure === undefined && receipt?.status === 'failed') {
    const reason =
      receipt.extras?.includes('"reason"') === true ? '; extras.reason names the error' : '';
    return `Read the log for this request id: the work failed after its response had been sent${reason}`;
  }
  const { route = '', facts } = failure ?? {};
  return operatorStep({ route, message: facts?.message ?? '' }, code, facts?.tries ?? []);
}

function unchargedReason(failure: FailureRecord | undefined, code: FaultCode | undefined): string {
  const status = failure?.status ?? 0;
  if (status === 402) return 'Not charged: the money for the request was not available';
  if (code === 'SETTLEMENT_PENDING') return 'Not charged: the payment is not credited yet';
  if (status === 429) return 'Not charged: a limit rejected the request before its hold';
  if (status === 401 || status === 403) {
    return 'Not charged: the caller was not authorized for the request';
  }
  if (status >= 400) return 'Not charged: the request was rejected before money was held for it';
  return 'Not charged: the request is not priced';
}

function chargeReason(row: UsageRow): string {
  const isFree = row.usd_nano + row.diem_nano === 0n;
  const retried = row.attempts > 1n ? '; failed tries are not charged' : '';
  const { prompt_tokens: prompt, completion_tokens: completion } = row;
  const usage =
    prompt + completion > 0n ? `${prompt} prompt and ${completion} completion tokens` : 'the work';
  const prices = `by the prices of version ${row.price_version}`;
  switch (row.status) {
    case 'completed':
      if (isFree) return `Free: the price of ${usage} is zero${retried}`;
      return `Charged for ${usage} ${prices}${retried}`;
    case 'aborted':
      if (isFree) return 'Not charged: the caller disconnected before any work was done';
      return `The caller disconnected: ${usage} until then are charged ${prices}`;
    case 'running':
      return 'Charged in advance: the job runs, and a failure is refunded';
    case 'expired':
      return isFree
        ? 'Not charged: the server ended the request before it was done'
        : `The server ended the request: ${usage} until then are charged ${prices}`;
    default:
      if (isFree) return 'Not charged: the hold was released, because the request failed';
      if (row.extras?.includes('"refundedUsd"') === true) {
        return 'Charged in advance, and refunded because the job failed: extras.refundedUsd';
      }
      return `The request failed after a part of its response was sent: ${usage} are charged ${prices}`;
  }
}
