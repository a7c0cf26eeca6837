/** A ledger whose requests settle by their id, as their sales settle by their hold. */
import type { Hold, HoldAnswer, HoldRequest } from '../../src/billing/ledger/ledger.ts';
import { Ledger, type SettleRequest, type Settlement } from '../../src/billing/ledger/ledger.ts';

export class TestLedger extends Ledger {
  readonly #holds = new Map<string, Hold>();

  async hold(request: HoldRequest): Promise<HoldAnswer> {
    const answer = await this.holds.place(request);
    if (answer.ok) this.#holds.set(request.requestId, answer.hold);
    return answer;
  }

  async settle(request: SettleRequest, hold = this.#holds.get(request.usage.requestId)) {
    if (hold === undefined) throw new Error(`Nothing was held for ${request.usage.requestId}`);
    return this.holds.settle(request, hold);
  }

  /** Of a request that another process held for. */
  async settleOf(other: TestLedger, request: SettleRequest): Promise<Settlement> {
    return this.settle(request, other.#holds.get(request.usage.requestId));
  }
}
