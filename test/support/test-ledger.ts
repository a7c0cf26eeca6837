/** Charges for tests, and a ledger that settles requests by their id, as sales settle by their hold. */
import assert from 'node:assert/strict';
import {
  type Hold,
  type HoldResult,
  type HoldRequest,
  Ledger,
  NO_TOKENS,
  type SettleRequest,
  type Settlement,
} from '../../src/billing/ledger/ledger.ts';
import type { Clock } from '../../src/core/clock.ts';
import { type Nano, ZERO, usdToNano } from '../../src/core/money.ts';
import type { Store } from '../../src/db/db.ts';

/** The settle of a chat with that cost, with the key of account `a` by default. */
export function bill(
  clock: Pick<Clock, 'nowMs'>,
  requestId: string,
  costNano: Nano,
  { accountId = 'a', keyId = 'k' } = {},
): SettleRequest {
  return {
    costNano,
    usage: {
      requestId,
      createdMs: clock.nowMs(),
      accountId,
      keyId,
      kind: 'chat',
      modelId: 'm',
      attempts: 1,
      tokens: NO_TOKENS,
      countedBy: 'engine',
      priceVersion: 'v1',
      latencyMs: 5,
      status: 'completed',
    },
  };
}

/** Charges a video that then fails, which refunds it by a posting of its own. */
export async function refundedJob(
  { ledger, store }: { readonly ledger: Ledger; readonly store: Store },
  clock: Pick<Clock, 'nowMs'>,
  job: { readonly requestId: string; readonly accountId: string; readonly usd: string },
): Promise<void> {
  const { requestId, accountId } = job;
  const costNano = usdToNano(job.usd);
  const price = { minNano: costNano, maxNano: costNano, floorNano: ZERO };
  const hold = { requestId, accountId, ...price, capIds: [], lifetime: 'durable' } as const;
  assert.ok((await ledger.holds.place(hold)).ok);
  const { usage } = bill(clock, requestId, costNano, { accountId });
  const running = { ...usage, kind: 'video', status: 'running' } as const;
  await store.transaction((tx) => ledger.settleIn(tx, { costNano, usage: running }));
  const failed = { ...running, status: 'failed' } as const;
  assert.ok(await store.transaction((tx) => ledger.refundIn(tx, failed)));
}

export class TestLedger extends Ledger {
  readonly #holds = new Map<string, Hold>();

  async hold(request: HoldRequest): Promise<HoldResult> {
    const answer = await this.holds.place(request);
    if (answer.ok) this.#holds.set(request.requestId, answer.hold);
    return answer;
  }

  async settle(request: SettleRequest, hold = this.#holds.get(request.usage.requestId)) {
    if (hold === undefined) throw new Error(`Nothing was held for ${request.usage.requestId}`);
    return this.holds.settle(request, hold);
  }

  /** Hold of a request in another process. */
  async settleOf(other: TestLedger, request: SettleRequest): Promise<Settlement> {
    return this.settle(request, other.#holds.get(request.usage.requestId));
  }
}
