/** A ledger for tests that settles requests by their id, as sales settle by their hold. */
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
import type { Nano } from '../../src/core/money.ts';

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
